"""The digest of weights as files hold them: the same number as the engine's, without torch.

docs/noise.md specifies it. The engine computes the element sums of live tensors (`engine.digest`); here they
are those of safetensors files, so that a snapshot can be checked before any engine trusts it.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["GOLDEN", "MIX", "NOISE_VERSION", "FileDamaged", "bits_sum", "file_sums", "weights_digest"]

NOISE_VERSION = 1
"""Of the noise specification: it is part of every digest."""
GOLDEN = 0x9E3779B97F4A7C15
MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)

_BLOCK = 1 << 15
"""Elements that one pass works on: their temporaries stay in the cache."""
_MAX_HEADER = 100_000_000
"""What the safetensors format allows."""
_WORDS: dict[str, np.dtype[Any]] = {"F32": np.dtype("<u4"), "BF16": np.dtype("<u2")}


class FileDamaged(ValueError):
    """A file of weights that is cut off or makes no sense; the message names it."""


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


def bits_sum(words: NDArray[Any], first: int = 0) -> int:
    """Sum modulo 2^64 of mix64(bits, index) over stored elements (32 or 16 bits each), row by row.

    first: index of the first of them in the whole parameter.
    """
    golden = np.uint64(GOLDEN)
    offset = (np.arange(min(_BLOCK, max(1, words.size)), dtype=np.uint64) + np.uint64(1)) * golden
    total = 0
    for start in range(0, words.size, _BLOCK):
        z = words[start : start + _BLOCK].astype(np.uint64)
        z += offset[: z.size]
        z += np.uint64((first + start) * GOLDEN % 2**64)
        z ^= z >> np.uint64(30)
        z *= np.uint64(MIX[0])
        z ^= z >> np.uint64(27)
        z *= np.uint64(MIX[1])
        z ^= z >> np.uint64(31)
        total += int(z.sum())
    return total % 2**64


def file_sums(path: Path) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Name, shape and element sum of every tensor of a safetensors file. Raises FileDamaged, OSError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = int.from_bytes(head, "little")
        if len(head) < 8 or length > min(_MAX_HEADER, size - 8):
            raise FileDamaged(f"{path.name}: it has {size} bytes and its header would have {length}")
        try:
            header = json.loads(file.read(length))
            tensors = {name: _place(entry) for name, entry in header.items() if name != "__metadata__"}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FileDamaged(f"{path.name}: its header is damaged ({error})") from None
        for name, (dtype, shape, begin, end) in tensors.items():
            if dtype not in _WORDS:
                raise FileDamaged(f"{path.name}: {name} has the type {dtype}; float32 or bfloat16 is wanted")
            word = _WORDS[dtype]
            if end - begin != math.prod(shape) * word.itemsize or 8 + length + end > size:
                raise FileDamaged(f"{path.name}: {name} does not fit into the file, which may be cut off")
            yield name, shape, _stored_sum(path, 8 + length + begin, math.prod(shape), word)


def _stored_sum(path: Path, begin: int, count: int, word: np.dtype[Any]) -> int:
    if not count:
        return 0
    return bits_sum(np.memmap(path, word, "r", begin, (count,)))


def _place(entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    begin, end = (int(value) for value in entry["data_offsets"])
    shape = tuple(int(value) for value in entry["shape"])
    if begin < 0 or end < begin or any(value < 0 for value in shape):
        raise ValueError("an offset or a shape is negative")
    return str(entry["dtype"]), shape, begin, end
