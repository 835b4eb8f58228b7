"""The digest of the weights: equal for equal weights, under any sharding, fusion or device.

For each checkpoint parameter the sum modulo 2^64 of mix64(bits, element index), each element once; then one
SHA-256 over all of them and over what the weights mean (base, scope, noise version, dtype).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor

from seedbed_server.engine.update import Shard
from seedbed_server.noise import NOISE_VERSION

__all__ = ["element_sum", "weights_digest"]

_BLOCK = 1 << 18
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


def _mix64(bits: Tensor, index: Tensor) -> Tensor:
    """SplitMix64's finaliser (Steele, Lea, Flood, OOPSLA 2014) of bits + (index + 1) * golden ratio.

    int64 in and out, wrapping; logical shifts are arithmetic ones with the sign cut off.
    """
    z = bits + (index + 1) * _GOLDEN
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * _MIX[0]
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * _MIX[1]
    return z ^ ((z >> 31) & 0x1FFFFFFFF)


def element_sum(weight: Tensor, shard: Shard | None = None) -> int:
    """Sum modulo 2^64 over the elements of one parameter or of one shard of it.

    Args:
        weight: [m, n] or [n], float32 (32 bits an element) or bfloat16 (16 bits); may be a strided view.
        shard: where it stands in the whole parameter.
    """
    shard = shard or Shard()
    matrix = weight if weight.dim() == 2 else weight[None]
    rows, columns = matrix.shape
    vector = weight.dim() == 1
    width = shard.columns or columns
    origin = shard.row if vector else shard.row * width + shard.column
    word, mask = (torch.int32, 0xFFFFFFFF) if weight.element_size() == 4 else (torch.int16, 0xFFFF)
    block = max(1, _BLOCK // max(columns, 1))
    total = 0
    for first in range(0, rows, block):
        part = matrix[first : first + block]
        bits = part.contiguous().view(word).to(torch.int64) & mask
        row = torch.arange(first, first + part.shape[0], dtype=torch.int64, device=weight.device)
        column = torch.arange(columns, dtype=torch.int64, device=weight.device)
        total += int(_mix64(bits, origin + row[:, None] * width + column).sum().item())
    return total % 2**64


def weights_digest(
    sums: Iterable[tuple[str, tuple[int, ...], int]], *, base: bytes, scope: str, dtype: str
) -> bytes:
    """SHA-256 of all parameters and of what they mean; 32 bytes.

    Args:
        sums: Hugging Face name, whole shape and element sum of every parameter.
        base: the digest of the weights that were loaded at the start; empty for those themselves.
        scope: which parameters take part, as the operator wrote it.
        dtype: the live dtype, such as `float32`.
    """
    text = [f"seedbed weights 1\nbase {base.hex()}\nscope {scope}\nnoise {NOISE_VERSION}\ndtype {dtype}\n"]
    for name, shape, value in sorted(sums):
        text.append(f"{name} {'x'.join(map(str, shape))} {value:016x}\n")
    return hashlib.sha256("".join(text).encode()).digest()
