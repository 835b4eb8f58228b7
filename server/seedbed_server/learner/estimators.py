"""From rewards to weights: who counts how much in the step.

Notation of the docstrings: r_i is the mean over the rewarded episodes of member i, c_i its weight (1, or less
for a stale one), mean and std are over members, weighted by c, with ddof 0. The weights w go into
theta += alpha (1/N) sum_i w_i sign_i E_i with N = sum_i c_i (`step`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "EpisodeReward",
    "Estimate",
    "Estimator",
    "MemberValue",
    "centered_rank",
    "clipped",
    "compare",
    "mean",
    "member_means",
    "member_values",
    "raw",
    "std",
    "weighted_mean",
    "zscore",
]

# Below this share of the largest value, a difference is the rounding of means and nothing else.
_ROUNDING = 1e-12
# Weights beyond these leave float32 once a step is folded. Only `raw` can get there.
_LEAST, _MOST = 1e-30, 1e30
_LARGEST = math.nextafter(math.inf, 0.0)


@dataclass(frozen=True, slots=True)
class EpisodeReward:
    """The reward of one episode, with what an estimator may compare it by."""

    member: int
    group: str | None
    reward: float
    weight: float = 1.0
    """How much it counts, above 0; less than 1 for an episode that is stale."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Weights by member, or the reason why there are none."""

    weights: tuple[tuple[int, float], ...]
    """(member, w) in the order of members, for every member that has a reward; empty if there is a reason."""
    reason: str | None = None
    """A code of `reasons.NO_STEP`."""


class Estimator(Protocol):
    """Turns the rewards of one population into weights. Pure; the order of rewards must not matter.

    Responsibilities: say a weight for every member that has a reward, or a reason code; never a number that
    is not finite. Read by `step.make_step`, which sums sign * w over the members of a seed.
    """

    def __call__(self, rewards: Sequence[EpisodeReward]) -> Estimate:
        """The weights for these rewards."""
        ...


class MemberValue(NamedTuple):
    """What the episodes of one member come to."""

    member: int
    value: float
    weight: float
    """The largest weight of its episodes."""


def zscore(rewards: Sequence[EpisodeReward]) -> Estimate:
    """w_i = c_i (r_i - mean(r)) / std(r).

    Source: arXiv 2509.24372 and arXiv 2608.17310, section 3; they add 1e-8 to the denominator, here a
    population without spread makes no step instead. Spread counts as none below 1e-12 of the largest reward,
    where it is the rounding of the means and nothing else. Reason codes: no_rewards, one_survivor, no_spread.
    """
    return compare(_scaled(member_values(rewards)), centre=True)


def centered_rank(rewards: Sequence[EpisodeReward]) -> Estimate:
    """w_i = c_i (u_i - mean(u)),  u_i = (members below i - members above i) / (2 (n - 1)).

    Without stale members mean(u) is 0: the worst of n gets -1/2, the best 1/2, equals get the middle of their
    ranks. Only the order counts, so that one reward of 1e9 moves as much as any other best one. The weights
    are smaller than z-scores (their root mean square is about 0.29): alpha means less here. Members count as
    equal within 1e-12 of the largest reward. Source: Salimans et al., arXiv 1703.03864, section 2.1, after
    the fitness shaping of Wierstra et al., JMLR 15 (2014). Reason codes: no_rewards, one_survivor, no_spread.
    """
    values = sorted(_scaled(member_values(rewards)), key=lambda item: item.value)
    if len(values) < 2:
        return Estimate((), "one_survivor" if values else "no_rewards")
    ties: list[list[MemberValue]] = []
    for item in values:
        if ties and item.value - ties[-1][-1].value <= _ROUNDING:
            ties[-1].append(item)
        else:
            ties.append([item])
    if len(ties) == 1:
        return Estimate((), "no_spread")
    ranked, below = [], 0
    for tied in ties:
        above = len(values) - below - len(tied)
        rank = (below - above) / (2 * (len(values) - 1))
        ranked += [item._replace(value=rank) for item in tied]
        below += len(tied)
    ranked.sort()
    centre = weighted_mean([item.value for item in ranked], [item.weight for item in ranked])
    return Estimate(tuple((item.member, item.weight * (item.value - centre)) for item in ranked))


def raw(rewards: Sequence[EpisodeReward]) -> Estimate:
    """w_i = c_i r_i: the rewards as they are.

    Whatever all members share moves the weights at random here, and alpha depends on the unit of the rewards:
    for rewards that are differences from a baseline already, and for experiments. arXiv 2608.27351 found
    z-scores better. The textbook estimator of Salimans et al., arXiv 1703.03864, algorithm 1. Reason codes:
    no_rewards, one_survivor, no_spread, and out_of_range for rewards of which none is within 1e-30 to 1e30.
    """
    values = member_values(rewards)
    reason = compare(_scaled(values), centre=True).reason
    if reason is not None:
        return Estimate((), reason)
    weights = tuple((item.member, item.weight * item.value) for item in values)
    if not _LEAST <= max(abs(weight) for _, weight in weights) <= _MOST:
        return Estimate((), "out_of_range")
    return Estimate(weights)


def clipped(estimator: Estimator, limit: float) -> Estimator:
    """The estimator with each w held within -limit to limit, after its normalisation and not centred again.

    One outlier then moves a step by at most alpha limit / N in its direction. Raises ValueError for a limit
    that is not finite and above 0.
    """
    if not math.isfinite(limit) or limit <= 0:
        raise ValueError(f"clip: {limit} leaves no weight; use a finite number above 0, 3 for instance")

    def estimate(rewards: Sequence[EpisodeReward]) -> Estimate:
        found = estimator(rewards)
        return replace(
            found,
            weights=tuple((member, max(-limit, min(limit, weight))) for member, weight in found.weights),
        )

    return estimate


def compare(values: Sequence[MemberValue], *, centre: bool) -> Estimate:
    """w_i = c_i (v_i - m) / s: m = mean(v) and s = std(v), or without centring m = 0 and s = rms(v).

    The values must be at most a few units in size, `_ROUNDING` being absolute here.
    """
    if len(values) < 2:
        return Estimate((), "one_survivor" if values else "no_rewards")
    weights = [item.weight for item in values]
    total = math.fsum(weights)
    middle = math.fsum(item.weight * item.value for item in values) / total if centre else 0.0
    squares = math.fsum(item.weight * (item.value - middle) ** 2 for item in values)
    spread = math.sqrt(squares / total)
    if spread <= _ROUNDING:
        return Estimate((), "no_spread")
    return Estimate(tuple((item.member, item.weight * ((item.value - middle) / spread)) for item in values))


def member_values(rewards: Sequence[EpisodeReward]) -> list[MemberValue]:
    """The weighted mean over the episodes of each member, in the order of members.

    Sums are exact before they are rounded (fsum), so that the order of episodes cannot change a bit.
    """
    by_member: dict[int, list[EpisodeReward]] = {}
    for item in rewards:
        by_member.setdefault(item.member, []).append(item)
    return [
        MemberValue(
            member,
            weighted_mean([item.reward for item in items], [item.weight for item in items]),
            max(item.weight for item in items),
        )
        for member, items in sorted(by_member.items())
    ]


def member_means(rewards: Sequence[EpisodeReward]) -> list[tuple[int, float]]:
    """(member, mean of the rewards of its episodes) in the order of members."""
    return [(item.member, item.value) for item in member_values(rewards)]


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """sum(weight * value) / sum(weight); the plain mean, to the last bit, where all weights are 1."""
    if all(weight == 1 for weight in weights):
        return mean(values)
    total = math.fsum(weights)
    return math.fsum(weight / total * value for weight, value in zip(weights, values, strict=True))


def mean(values: Sequence[float]) -> float:
    """The mean. Values are divided before they are added where their sum would overflow."""
    if max(abs(value) for value in values) > _LARGEST / len(values):
        return math.fsum(value / len(values) for value in values)
    return math.fsum(values) / len(values)


def std(values: Sequence[float]) -> float:
    """The standard deviation with ddof 0, finite for every list of finite values."""
    largest = max(abs(value) for value in values)
    if largest == 0:
        return 0.0
    scaled = [value / largest for value in values]
    centre = mean(scaled)
    return largest * math.sqrt(math.fsum((value - centre) ** 2 for value in scaled) / len(scaled))


def _scaled(values: Sequence[MemberValue]) -> list[MemberValue]:
    """At most 1 in size, so that squares neither overflow nor vanish."""
    largest = max((abs(item.value) for item in values), default=0.0)
    return [item._replace(value=item.value / largest) for item in values] if largest else list(values)
