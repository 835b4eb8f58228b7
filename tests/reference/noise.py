"""Noise specification 1 (docs/noise.md) in NumPy: noise, update, rounding, digest.

Slow and plain on purpose: unsigned arithmetic of the width that the page says, one function for each of its
sections. Nothing of the product is imported here. The float64 twins say what the exact result would be.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
Bits = npt.NDArray[Any]
"""uint32 for float32 weights, uint16 for bfloat16 ones."""
F64 = npt.NDArray[np.float64]
Role = Literal["matrix", "bias", "norm"]

A, B, VECTOR, ROUNDING = 0, 1, 2, 3
MASK = 0xFFFFFFFF


def philox4x32_10(counter: U32, key: tuple[int, int]) -> U32:
    """Counters uint32 [..., 4] and one key to words uint32 [..., 4]."""
    x = [counter[..., j].astype(np.uint64) for j in range(4)]
    k0, k1 = key
    for _ in range(10):
        p, q = x[0] * np.uint64(0xD2511F53), x[2] * np.uint64(0xCD9E8D57)
        x = [
            (q >> np.uint64(32)) ^ x[1] ^ np.uint64(k0),
            q & np.uint64(MASK),
            (p >> np.uint64(32)) ^ x[3] ^ np.uint64(k1),
            p & np.uint64(MASK),
        ]
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return np.stack(x, axis=-1).astype(np.uint32)


def name_hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8"), digest_size=8).digest(), "little")


def words(key: int, name: str, factor: int, index: npt.NDArray[np.int64], rank_index: int = 0) -> U32:
    """The word of each element: uint32 of the shape of `index`, which holds element indices."""
    h = name_hash(name)
    counter = np.empty((*index.shape, 4), dtype=np.uint32)
    counter[..., 0] = index // 4
    counter[..., 1] = factor * 2**24 + rank_index
    counter[..., 2] = h & MASK
    counter[..., 3] = h >> 32
    blocks = philox4x32_10(counter, (key & MASK, key >> 32))
    return np.take_along_axis(blocks, (index % 4)[..., None], axis=-1)[..., 0]


def values(
    seed: int, name: str, factor: int, start: int, stop: int, rank_index: int = 0
) -> npt.NDArray[np.int64]:
    """Integers in [-16, 16] for the elements [start, stop)."""
    drawn = words(seed, name, factor, np.arange(start, stop, dtype=np.int64), rank_index)
    return np.bitwise_count(drawn).astype(np.int64) - 16


def perturbation(seed: int, name: str, shape: tuple[int, ...], rank: int = 1) -> F64:
    """E of a matrix [m, n], or eps of a vector [n], as float64."""
    if len(shape) == 1:
        return values(seed, name, VECTOR, 0, shape[0]) / math.sqrt(8.0)
    m, n = shape
    total = np.zeros((m, n))
    for j in range(rank):
        total += np.multiply.outer(values(seed, name, A, 0, m, j), values(seed, name, B, 0, n, j))
    return total / (8.0 * math.sqrt(rank))


def perturbed(weight: npt.NDArray[np.float32], name: str, role: Role, seed: int, sigma: float) -> F64:
    """The weights that a member with this seed and signed sigma has: float64."""
    noise = sigma * perturbation(seed, name, weight.shape)
    w = weight.astype(np.float64)
    return w * (1.0 + noise) if role == "norm" else w + noise


@dataclass(frozen=True)
class Update:
    """What an update record says."""

    version: int
    seeds: tuple[int, ...]
    coefficients: tuple[int, ...]
    matrix_multiplier: float
    vector_multiplier: float
    stochastic: bool = False
    decay: float = 0.0


def integer_sum(name: str, role: Role, shape: tuple[int, ...], update: Update) -> F64:
    """S, exact (all of it is below 2^53)."""
    c = np.array(update.coefficients, dtype=np.int64)
    if role == "matrix":
        a = np.stack([values(s, name, A, 0, shape[0]) for s in update.seeds])
        b = np.stack([values(s, name, B, 0, shape[1]) for s in update.seeds])
        return (c[:, None] * a).T.astype(np.float64) @ b.astype(np.float64)
    v = np.stack([values(s, name, VECTOR, 0, shape[0]) for s in update.seeds])
    return (c @ v).astype(np.float64)


def widen(bits: Bits) -> npt.NDArray[np.float32]:
    """The float32 numbers that stored weights stand for."""
    if bits.dtype == np.uint16:
        bits = bits.astype(np.uint32) << np.uint32(16)
    return np.ascontiguousarray(bits).view(np.float32)


def narrow_nearest(value: npt.NDArray[np.float32]) -> Bits:
    """float32 to bfloat16, ties to even: uint16."""
    bits = value.view(np.uint32).astype(np.uint64)
    bits = bits + np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))
    return (bits >> np.uint64(16)).astype(np.uint16)


def narrow_stochastic(value: npt.NDArray[np.float32], random: U32) -> Bits:
    """float32 to bfloat16 with the low 16 bits of one word an element: uint16."""
    bits = value.view(np.uint32).astype(np.uint64) + (random.astype(np.uint64) & np.uint64(0xFFFF))
    return (bits >> np.uint64(16)).astype(np.uint16)


def updated(bits: Bits, name: str, role: Role, update: Update, base: Bits | None = None) -> Bits:
    """Stored weights after one update; the dtype (uint32 or uint16) stays. A decay needs the base's bits."""
    w = widen(bits)
    k = np.float32(update.matrix_multiplier if role == "matrix" else update.vector_multiplier)
    t = (k * integer_sum(name, role, bits.shape, update).astype(np.float32)).astype(np.float32)
    if role == "norm":
        t = (w * t).astype(np.float32)
    if update.decay:
        assert base is not None
        back = (widen(base) - w).astype(np.float32)
        t = (t + (np.float32(update.decay) * back).astype(np.float32)).astype(np.float32)
    new = (w + t).astype(np.float32)
    if bits.dtype == np.uint32:
        return new.view(np.uint32)
    if not update.stochastic:
        return narrow_nearest(new)
    index = np.arange(bits.size, dtype=np.int64).reshape(bits.shape)
    return narrow_stochastic(new, words(update.version, name, ROUNDING, index))


def updated_exactly(bits: Bits, name: str, role: Role, update: Update, base: Bits | None = None) -> F64:
    """The float64 twin: the same step without any rounding but float64's."""
    w = widen(bits).astype(np.float64)
    k = update.matrix_multiplier if role == "matrix" else update.vector_multiplier
    t = k * integer_sum(name, role, bits.shape, update)
    back = 0.0 if base is None else update.decay * (widen(base).astype(np.float64) - w)
    return (w * (1.0 + t) if role == "norm" else w + t) + back


def element_sum(bits: Bits) -> int:
    """Sum of the mixed elements of one parameter, modulo 2^64."""
    with np.errstate(over="ignore"):
        z = bits.reshape(-1).astype(np.uint64)
        z = z + np.arange(1, z.size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return int(np.sum(z ^ (z >> np.uint64(31)), dtype=np.uint64))


def digest(parameters: dict[str, Bits], *, base: bytes, scope: str) -> bytes:
    """The digest of a whole model: 32 bytes."""
    stored = next(iter(parameters.values())).dtype
    dtype = {np.dtype(np.uint32): "float32", np.dtype(np.uint16): "bfloat16"}[stored]
    lines = ["seedbed weights 1", f"base {base.hex()}", f"scope {scope}", "noise 1", f"dtype {dtype}"]
    for name in sorted(parameters, key=lambda text: text.encode("utf-8")):
        bits = parameters[name]
        shape = "x".join(str(n) for n in bits.shape)
        lines.append(f"{name} {shape} {element_sum(bits):016x}")
    return hashlib.sha256(("\n".join(lines) + "\n").encode("utf-8")).digest()
