"""From weights to the numbers of an update: theta += alpha (1/N) sum_i w_i sign_i E_i.

N counts the members that have a reward; a stale one counts with its weight.

The 1/sigma of the estimator is folded into alpha. Everything that an engine would have to divide, or take a
root of, is folded here into two float32 multipliers, so that a replay only multiplies and adds.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seedbed_server.learner.estimators import EpisodeReward, Estimator, mean, member_means, std
from seedbed_server.learner.population import Population, all_rewards, explored, rewarded_members

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NoStep", "Statistics", "Step", "fl32", "make_step", "quantise", "statistics"]

# A value of the noise is an integer of variance 8 over sqrt(8): a matrix entry is a product of two, a
# vector's is one (noise specification 1).
_VARIANCE = 8
_BELOW_1 = 1 - 2.0**-24
"""The largest float32 number below 1."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Raw rewards of a population, before any estimator: what says whether it learns."""

    mean: float
    spread: float
    """Standard deviation over the members, ddof 0."""
    minimum: float
    maximum: float
    best_member: int
    """The lowest index among equals."""
    members: int
    """Members that have a reward."""
    episodes: int
    """Episodes that have a reward."""


@dataclass(frozen=True, slots=True)
class Step:
    """One update, complete but for what the engine knows (versions and digests)."""

    seeds: tuple[int, ...]
    """Distinct, in the order of members."""
    coefficients: tuple[int, ...]
    """One for each seed, -127 to 127."""
    scale: float
    """A float32: coefficient * scale is the sum of sign * w over the members of a seed, to scale / 2."""
    matrix_multiplier: float
    """A float32: alpha scale / (N 8 sqrt(rank))."""
    vector_multiplier: float
    """A float32: alpha scale / (N sqrt(8))."""
    sigma: float
    alpha: float
    members: int
    """The members that have a reward, stale ones included: N, unless one of those weighs less than 1."""
    decay: float = 0.0
    """A float32: the share of the way back to the base weights that the step goes."""


@dataclass(frozen=True, slots=True)
class NoStep:
    """A population that says nothing about where to go."""

    reason: str
    """A code of `reasons.NO_STEP`."""


def make_step(
    population: Population,
    estimator: Estimator,
    alpha: float,
    rank: int = 1,
    quorum: int = 0,
    decay: float = 0.0,
) -> Step | NoStep:
    """The step of a population, or the reason for none. `quorum`: own members that must have a reward.

    With a `decay`, theta += alpha (1/N) sum_i w_i sign_i E_i + decay (theta_0 - theta): weight decay that is
    decoupled from the gradient (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019,
    algorithm 2), anchored at the base weights instead of 0.

    Raises ValueError for an alpha that is negative, not finite, or too small or large for float32, for a rank
    below 1, and for a decay outside [0, 1).
    """
    if not math.isfinite(alpha) or alpha < 0:
        raise ValueError(f"alpha: {alpha} cannot scale a step; use a finite number of at least 0")
    if rank < 1:
        raise ValueError(f"rank: {rank} is not a rank; use 1 or more")
    if not 0 <= decay < 1:
        raise ValueError(f"decay: {decay} is no share of the way to the base; use 0 to below 1")
    present = rewarded_members(population)
    if present < quorum and (present or population.stale):
        return NoStep("too_few_members")
    estimate = estimator(all_rewards(population))
    if estimate.reason is not None:
        return NoStep(estimate.reason)
    if alpha == 0:
        return NoStep("no_alpha")
    everybody = explored(population)
    sums: dict[int, list[float]] = {}
    for index, weight in estimate.weights:
        member = everybody[index][0]
        sums.setdefault(member.seed, []).append(member.sign * weight)
    seeds = tuple(sums)
    quantised = quantise([math.fsum(values) for values in sums.values()])
    if quantised is None:
        return NoStep("no_direction")
    coefficients, scale = quantised
    count = math.fsum(everybody[index][1] for index, _ in estimate.weights)
    matrix = fl32(alpha * scale / (count * _VARIANCE * math.sqrt(rank)))
    vector = fl32(alpha * scale / (count * math.sqrt(_VARIANCE)))
    if matrix == 0 or not math.isfinite(vector):
        raise ValueError(f"alpha: {alpha} leaves float32 once it is folded; use one nearer to 1e-3")
    members = len(estimate.weights)
    share = min(fl32(decay), _BELOW_1)
    return Step(seeds, coefficients, scale, matrix, vector, population.sigma, alpha, members, share)


def quantise(values: Sequence[float]) -> tuple[tuple[int, ...], float] | None:
    """int8 codes and one float32 scale = max|c| / 127, codes rounded to nearest, ties to even.

    The error is at most half the scale (and its float32 rounding). None if nothing is left to scale.
    """
    largest = max((abs(value) for value in values), default=0.0)
    scale = fl32(largest / 127)
    if scale == 0:
        return None
    return tuple(max(-127, min(127, round(value / scale))) for value in values), scale


def statistics(rewards: Sequence[EpisodeReward]) -> Statistics | None:
    """Raw statistics over members; None without any reward."""
    means = member_means(rewards)
    if not means:
        return None
    values = [value for _, value in means]
    best = max(means, key=lambda item: (item[1], -item[0]))[0]
    return Statistics(mean(values), std(values), min(values), max(values), best, len(values), len(rewards))


def fl32(value: float) -> float:
    """The nearest float32, ties to even; infinite beyond its range."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded
