"""The digest of the weights: equal for equal weights, under any sharding, fusion or device.

For each checkpoint parameter the sum modulo 2^64 of mix64(bits, element index), each element once; then one
SHA-256 over all of them and over what the weights mean (base, scope, noise version, dtype).
"""

from __future__ import annotations

import torch
from torch import Tensor

from seedbed_server.digests import GOLDEN, MIX, weights_digest
from seedbed_server.engine.update import Shard

__all__ = ["element_sum", "mix64_", "signed", "weights_digest"]

_BLOCK = 1 << 15
"""Elements that one pass works on: their int64 temporaries stay in the cache, and torch takes one thread."""


def signed(value: int) -> int:
    """The int64 number with the low 64 bits of `value`."""
    return ((value + 2**63) % 2**64) - 2**63


_MIX = (signed(MIX[0]), signed(MIX[1]))


def mix64_(z: Tensor) -> Tensor:
    """SplitMix64's finaliser (Steele, Lea, Flood, OOPSLA 2014), in place.

    int64 in and out, wrapping; logical shifts are arithmetic ones with the sign cut off.
    """
    z.bitwise_xor_((z >> 30).bitwise_and_(0x3FFFFFFFF)).mul_(_MIX[0])
    z.bitwise_xor_((z >> 27).bitwise_and_(0x1FFFFFFFFF)).mul_(_MIX[1])
    return z.bitwise_xor_((z >> 31).bitwise_and_(0x1FFFFFFFF))


def element_sum(weight: Tensor, shard: Shard | None = None) -> int:
    """Sum modulo 2^64 of mix64(bits + (index + 1) * golden ratio) over one parameter or one shard of it.

    Args:
        weight: [m, n] or [n], float32 (32 bits an element) or bfloat16 (16 bits); may be a strided view.
        shard: where it stands in the whole parameter.
    """
    shard = shard or Shard()
    rows, columns = weight.shape if weight.dim() == 2 else (1, weight.shape[0])
    width = shard.columns or columns
    origin = shard.row if weight.dim() == 1 else shard.row * width + shard.column
    if width == columns:
        # Neighbours in memory are neighbours in the index: cut as suits the cache.
        matrix = weight.contiguous().view(1, -1)
    else:
        matrix = weight.view(rows, columns)
    word, mask = (torch.int32, 0xFFFFFFFF) if weight.element_size() == 4 else (torch.int16, 0xFFFF)
    offset = torch.arange(min(_BLOCK, matrix.shape[1]), dtype=torch.int64, device=weight.device)
    offset.mul_(signed(GOLDEN))
    total = 0
    for row in range(matrix.shape[0]):
        for first in range(0, matrix.shape[1], _BLOCK):
            bits = matrix[row, first : first + _BLOCK].contiguous().view(word).to(torch.int64)
            bits.bitwise_and_(mask).add_(offset[: bits.shape[0]]).add_(
                signed((origin + row * width + first + 1) * GOLDEN)
            )
            total += int(mix64_(bits).sum().item())
    return total % 2**64
