"""Statistics of the noise, with bounds that follow from the size of the sample.

A check is a function of a source of noise and says by how many standard errors it is off. Everything is
drawn from fixed seeds, so a check that holds always holds. That each can fail is shown with sources that
have the defect it looks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from seedbed_server.noise import Factor, draw, rounding_words

Numbers = npt.NDArray[np.float64]
Source = Callable[[int, str, Factor, int, int], Numbers]
"""(seed, parameter, factor, rank index, how many values) to the first values."""

BOUND = 5.0
"""Standard errors. By chance a check is this far off once in 1.7 million."""
SAMPLE = 1 << 20
LENGTH = 1 << 12
Q, K, V = (f"model.layers.3.self_attn.{part}_proj.weight" for part in "qkv")

# Moments of 32 fair coins about their mean, exact.
_WEIGHT = np.array([math.comb(32, k) for k in range(33)]) / 2.0**32
_VALUE = np.arange(-16.0, 17.0)
M2, M4, M8 = (float((_WEIGHT * _VALUE**p).sum()) for p in (2, 4, 8))


def product(seed: int, name: str, factor: Factor, rank_index: int, count: int) -> Numbers:
    return draw([seed], name, factor, 0, count, rank_index=rank_index)[0].numpy().astype(np.float64)


def _sample(source: Source) -> Numbers:
    """Values of many seeds and parameters."""
    each = SAMPLE // 32
    parts = [source(seed, name, Factor.A, 0, each) for seed in range(16) for name in (Q, V)]
    return np.concatenate(parts)


def mean(source: Source) -> float:
    x = _sample(source)
    return float(x.mean()) / math.sqrt(M2 / x.size)


def variance(source: Source) -> float:
    x = _sample(source)
    return (float((x**2).mean()) - M2) / math.sqrt((M4 - M2**2) / x.size)


def kurtosis(source: Source) -> float:
    x = _sample(source)
    error = math.sqrt((M8 - M4**2) / x.size)
    assert BOUND * error / M2**2 < 1 / 16, "the sample is too small to tell this noise from a normal one"
    return (float((x**4).mean()) - M4) / error


def shape(source: Source) -> float:
    """Chi-square over the values from -8 to 8 and the two tails, as standard errors of its own."""
    x = np.clip(_sample(source), -9, 9)
    expected = np.concatenate([[_WEIGHT[:8].sum()], _WEIGHT[8:25], [_WEIGHT[25:].sum()]]) * x.size
    counted = np.array([(x == v).sum() for v in range(-9, 10)])
    degrees = len(expected) - 1
    return (float(((counted - expected) ** 2 / expected).sum()) - degrees) / math.sqrt(2 * degrees)


def _correlations(streams: list[Numbers]) -> float:
    """The largest of all pairwise correlations of values and of their squares, in standard errors."""
    standard = [
        *((x / math.sqrt(M2)) for x in streams),
        *(((x**2 - M2) / math.sqrt(M4 - M2**2)) for x in streams),
    ]
    count = len(streams)
    table = np.stack(standard) @ np.stack(standard).T / math.sqrt(len(streams[0]))
    pairs = [(i, j) for i, j in combinations(range(2 * count), 2) if j != i + count]
    return max((float(table[i, j]) for i, j in pairs), key=abs)


def between_parameters(source: Source) -> float:
    names = [
        f"model.layers.{layer}.{part}.weight"
        for layer in range(4)
        for part in ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj", "input_layernorm")
    ]
    return _correlations([source(1, name, Factor.A, 0, LENGTH) for name in names])


def between_seeds(source: Source) -> float:
    seeds = [0, 1, 2, 3, 2**31, 2**32, 2**32 + 1, 2**33, 2**63, 2**64 - 1, 2**64 - 2]
    return _correlations([source(seed, Q, Factor.A, 0, LENGTH) for seed in seeds])


def between_ranks(source: Source) -> float:
    return _correlations([source(1, Q, Factor.A, rank_index, LENGTH) for rank_index in range(12)])


def between_factors(source: Source) -> float:
    factors = [Factor.A, Factor.B, Factor.VECTOR]
    return _correlations([source(seed, Q, f, 0, LENGTH) for seed in (1, 2, 3) for f in factors])


def between_neighbours(source: Source) -> float:
    """Elements at distances 1 to 12: within one block of Philox and across blocks."""
    x = source(1, Q, Factor.A, 0, LENGTH * 16)
    worst = 0.0
    for y, spread in ((x / math.sqrt(M2), 1.0), ((x**2 - M2) / math.sqrt(M4 - M2**2), 1.0)):
        for distance in range(1, 13):
            z = float((y[distance:] * y[:-distance]).sum()) / (spread * math.sqrt(len(y) - distance))
            worst = max(worst, z, key=abs)
    return worst


CHECKS = [
    mean,
    variance,
    kurtosis,
    shape,
    between_parameters,
    between_seeds,
    between_ranks,
    between_factors,
    between_neighbours,
]


@pytest.mark.parametrize("check", CHECKS)
def test_the_noise_is_what_the_specification_says(check: Callable[[Source], float]) -> None:
    assert abs(check(product)) < BOUND


def _shifted(seed: int, name: str, factor: Factor, rank_index: int, count: int) -> Numbers:
    """One value in 50 is 1 too high."""
    x = product(seed, name, factor, rank_index, count)
    x[::50] += 1
    return x


def _narrow(seed: int, name: str, factor: Factor, rank_index: int, count: int) -> Numbers:
    """Every second word has lost one of its coins: variance 7.875."""
    x = product(seed, name, factor, rank_index, count)
    head = np.random.default_rng(seed).random(len(x[::2])) < (x[::2] + 16) / 32
    x[::2] -= np.where(head, 0.5, -0.5)
    return x


def _normal(seed: int, name: str, factor: Factor, rank_index: int, count: int) -> Numbers:
    """Normal numbers of the right mean and variance."""
    key = np.random.SeedSequence([seed, sum(name.encode()), factor, rank_index])
    return np.random.default_rng(key).normal(0.0, math.sqrt(M2), count)


def _rounded_normal(seed: int, name: str, factor: Factor, rank_index: int, count: int) -> Numbers:
    """Normal numbers rounded to integers; a twelfth of the variance is the rounding's."""
    key = np.random.SeedSequence([seed, sum(name.encode()), factor, rank_index])
    return np.round(np.random.default_rng(key).normal(0.0, math.sqrt(M2 - 1 / 12), count))


DEFECTS: dict[str, tuple[Callable[[Source], float], Source]] = {
    "a small bias": (mean, _shifted),
    "a lost coin": (variance, _narrow),
    "normal numbers": (kurtosis, _normal),
    "rounded normal numbers": (shape, _rounded_normal),
    "one stream for all layers": (
        between_parameters,
        lambda seed, name, f, r, n: product(seed, name.replace("layers.2", "layers.0"), f, r, n),
    ),
    "one stream for all names": (between_parameters, lambda seed, _, f, r, n: product(seed, "w", f, r, n)),
    "32 bits of the seed": (between_seeds, lambda seed, name, f, r, n: product(seed % 2**32, name, f, r, n)),
    "mirrored neighbours": (
        between_seeds,
        lambda seed, name, f, r, n: (1 - seed % 2 * 2) * product(seed // 2, name, f, r, n),
    ),
    "one stream for all ranks": (between_ranks, lambda seed, name, f, _, n: product(seed, name, f, 0, n)),
    "one stream for all factors": (
        between_factors,
        lambda seed, name, _, r, n: product(seed, name, Factor.A, r, n),
    ),
    "one word for two elements": (
        between_neighbours,
        lambda seed, name, f, r, n: np.repeat(product(seed, name, f, r, n // 2), 2),
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_seen(defect: str) -> None:
    check, source = DEFECTS[defect]
    assert abs(check(source)) > BOUND


def test_shifted_streams_are_not_shared() -> None:
    """No stretch of 16 values of one seed stands anywhere in the stream of another seed or parameter."""
    seen: dict[bytes, tuple[int, str]] = {}
    for seed in range(8):
        for name in (Q, K):
            x = draw([seed], name, Factor.A, 0, LENGTH)[0].numpy()
            for start in range(LENGTH - 16):
                stretch = x[start : start + 16].tobytes()
                assert seen.setdefault(stretch, (seed, name)) == (seed, name)


def test_members_point_in_different_directions() -> None:
    """The cosine of two members' E, m x n, has deviation 1 / sqrt(m n)."""
    m, n, members = 96, 64, 12
    a = draw(range(members), Q, Factor.A, 0, m).double()
    b = draw(range(members), Q, Factor.B, 0, n).double()
    e = torch.einsum("sm,sn->smn", a, b).flatten(1)
    cosines = torch.nn.functional.normalize(e) @ torch.nn.functional.normalize(e).t()
    off = cosines[~torch.eye(members, dtype=torch.bool)] * math.sqrt(m * n)
    assert off.abs().max().item() < 2 * BOUND  # a product of two normals has longer tails than one
    assert abs(off.mean().item()) < BOUND / math.sqrt(off.numel() / 2)
    # Entries have variance 1 once the integers are scaled.
    assert abs((e / 8).square().mean().item() - 1) < BOUND * math.sqrt(2 * 2.1 / (members * min(m, n)))


def test_rounding_words_are_uniform() -> None:
    words = rounding_words(Q, 1, [0], 1 << 18)[0].numpy()
    assert words.min() >= 0
    assert words.max() < 2**32
    bits = (words[:, None] >> np.arange(32)) & 1
    assert np.abs(bits.mean(0) - 0.5).max() < BOUND * 0.5 / math.sqrt(len(words))
    centred = 2.0 * bits - 1
    table = np.abs(centred.T @ centred / math.sqrt(len(words)))
    np.fill_diagonal(table, 0)
    assert table.max() < BOUND
    for shift in (0, 8):  # the two bytes that a rounding uses
        counted = np.bincount((words >> shift) & 0xFF, minlength=256)
        expected = len(words) / 256
        assert abs(((counted - expected) ** 2 / expected).sum() - 255) < BOUND * math.sqrt(2 * 255)


def test_rounding_words_of_two_versions_are_independent() -> None:
    first, second = ((rounding_words(Q, v, [0], 1 << 16)[0].numpy() & 0xFFFF) / 65536 - 0.5 for v in (1, 2))
    assert abs(float((first * second).sum())) * 12 / math.sqrt(len(first)) < BOUND
