"""Where the seeds of a population come from: a hash, so that a run can be repeated."""

from __future__ import annotations

import hashlib
import struct

__all__ = ["derive_seed"]

_MAX_UINT64 = 2**64 - 1


def derive_seed(run_seed: int, population: int, direction: int) -> int:
    """The seed of one direction of a population, 0 to 2^64 - 1.

    BLAKE2b with 8 bytes of digest over the three numbers as little-endian uint64. `direction` is the index of
    the member, or of the pair where a population is mirrored: both members of a pair explore one seed.
    Raises ValueError for a number outside uint64.
    """
    for name, value in (("run_seed", run_seed), ("population", population), ("direction", direction)):
        if not 0 <= value <= _MAX_UINT64:
            raise ValueError(f"{name}: {value} is outside 0 to 2^64 - 1; use an unsigned 64-bit number")
    packed = struct.pack("<QQQ", run_seed, population, direction)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little")
