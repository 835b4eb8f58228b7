"""What a seed means: noise specification 1 (docs/noise.md).

A perturbation is a pure function of its address. Every value is one word of Philox4x32-10
(Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), addressed by seed, parameter
name, factor, rank index and element index, so that any part of any factor can be made anywhere, in any
order, with the same bits.

Words are 32-bit unsigned numbers held in int64 tensors; torch has no unsigned arithmetic that all
devices share.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from seedbed_server.digests import NOISE_VERSION

__all__ = [
    "MAX_SEED",
    "NOISE_VERSION",
    "Factor",
    "Plan",
    "Segment",
    "check_seed",
    "draw",
    "name_hash",
    "rounding_words",
]

MAX_SEED = 2**64 - 1

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


class Factor(IntEnum):
    """Which stream of a parameter: the third part of a counter."""

    A = 0
    B = 1
    VECTOR = 2
    ROUNDING = 3


@dataclass(frozen=True)
class Segment:
    """Elements [start, stop) of one factor of one parameter, for one rank index."""

    name: str
    factor: Factor
    start: int
    stop: int
    rank_index: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop <= 2**34:
            raise ValueError(
                f"{self.name}: elements {self.start} to {self.stop} are not a range within 0 to 2^34"
            )
        if not 0 <= self.rank_index < 2**24:
            raise ValueError(
                f"{self.name}: rank index {self.rank_index} is outside 0 to 2^24 - 1; correct it"
            )

    def __len__(self) -> int:
        return self.stop - self.start


def check_seed(seed: int) -> int:
    """The seed itself. Raises ValueError outside [0, 2^64 - 1], TypeError for what is no integer."""
    if operator.index(seed) != seed or not 0 <= seed <= MAX_SEED:
        raise ValueError(f"seed: {seed} is outside 0 to 2^64 - 1; use an unsigned 64-bit number")
    return seed


def name_hash(name: str) -> int:
    """BLAKE2b-64 of the UTF-8 Hugging Face state-dict name, read as a little-endian number."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def _philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: int | Tensor) -> Tensor:
    """Ten rounds on counters of one shape; returns words of that shape and one more axis of 4.

    A key tensor holds the bits of 64-bit keys in int64 and is broadcast against the counters.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key & _LOW, (key >> 32) & _LOW
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        # The products wrap to the right 64 bits; the mask undoes the sign of the shift.
        c0, c1, c2, c3 = ((p1 >> 32) & _LOW) ^ c1 ^ k0, p1 & _LOW, ((p0 >> 32) & _LOW) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return torch.stack((c0, c1, c2, c3), dim=-1)


def _popcount(words: Tensor) -> Tensor:
    """Number of set bits of 32-bit words."""
    words = words - ((words >> 1) & 0x55555555)
    words = (words & 0x33333333) + ((words >> 2) & 0x33333333)
    words = (words + (words >> 4)) & 0x0F0F0F0F
    return ((words * 0x01010101) >> 24) & 0xFF


class Plan:
    """The counters of many segments, laid end to end, made once and used for many seeds.

    Args:
        segments: what to draw, in the order of the result.
        device: where to draw it.
    """

    def __init__(self, segments: Sequence[Segment], device: torch.device | str = "cpu") -> None:
        self.segments = tuple(segments)
        self.length = sum(len(s) for s in self.segments)
        blocks, keep, base = [], [], 0
        for s in self.segments:
            first, last = s.start // 4, -(-s.stop // 4)
            hashed = name_hash(s.name)
            stream = (s.factor << 24) + s.rank_index
            index = torch.arange(first, last, dtype=torch.int64)
            blocks.append(
                torch.stack(
                    [index, *(torch.full_like(index, c) for c in (stream, hashed & _LOW, hashed >> 32))]
                )
            )
            keep.append(torch.arange(len(s), dtype=torch.int64) + (base + s.start - 4 * first))
            base += 4 * (last - first)
        counters = torch.cat(blocks, dim=1) if blocks else torch.zeros(4, 0, dtype=torch.int64)
        self._counter = tuple(counters.to(device))
        self._keep = None if base == self.length else torch.cat(keep).to(device)

    def draw(self, seed: int) -> Tensor:
        """All segments for one seed: int8 [length], integers in [-16, 16] of variance 8."""
        c0, c1, c2, c3 = self._counter
        values = (_popcount(_philox((c0, c1, c2, c3), check_seed(seed))) - 16).to(torch.int8).view(-1)
        return values if self._keep is None else values[self._keep]

    def draw_many(self, seeds: Sequence[int]) -> Tensor:
        """All segments for several seeds at once: int8 [len(seeds), length]."""
        signed = [check_seed(seed) - 2**64 if seed >> 63 else seed for seed in seeds]
        key = torch.tensor(signed, dtype=torch.int64, device=self._counter[0].device)[:, None]
        c0, c1, c2, c3 = self._counter
        values = (_popcount(_philox((c0, c1, c2, c3), key)) - 16).to(torch.int8).flatten(1)
        return values if self._keep is None else values[:, self._keep]


def draw(
    seeds: Sequence[int],
    name: str,
    factor: Factor,
    start: int,
    stop: int,
    *,
    rank_index: int = 0,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Elements [start, stop) of one factor for several seeds: int8 [len(seeds), stop - start]."""
    return Plan([Segment(name, factor, start, stop, rank_index)], device).draw_many(seeds)


def rounding_words(
    name: str, version: int, starts: Sequence[int], width: int, device: torch.device | str = "cpu"
) -> Tensor:
    """Random bits for the rounding of an update.

    Args:
        name: Hugging Face name of the parameter.
        version: the version that the update makes; the key of the stream.
        starts: flat element index, in the whole parameter, at which each row begins.
        width: elements of a row.

    Returns:
        Words in int64 [len(starts), width], each in [0, 2^32).
    """
    if not starts or not width:
        return torch.zeros(len(starts), width, dtype=torch.int64, device=device)
    hashed = name_hash(name)
    start = torch.tensor(starts, dtype=torch.int64, device=device)[:, None]
    blocks = (width + 6) // 4  # enough for every alignment of a row
    index = start // 4 + torch.arange(blocks, dtype=torch.int64, device=device)
    fixed = [torch.full_like(index, c) for c in (Factor.ROUNDING << 24, hashed & _LOW, hashed >> 32)]
    words = _philox((index, fixed[0], fixed[1], fixed[2]), version).view(len(starts), -1)
    aligned = (start[0] % 4).item() if len(starts) == 1 else None
    if aligned is not None:
        return words[:, int(aligned) : int(aligned) + width]
    return words.gather(1, start % 4 + torch.arange(width, dtype=torch.int64, device=device))
