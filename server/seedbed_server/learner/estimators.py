"""From rewards to weights: who counts how much in the step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["EpisodeReward", "Estimate", "Estimator", "member_means", "zscore"]


@dataclass(frozen=True, slots=True)
class EpisodeReward:
    """The reward of one episode, with what an estimator may compare it by."""

    member: int
    group: str | None
    reward: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """Weights by member, or the reason why there are none."""

    weights: tuple[tuple[int, float], ...]
    """(member, w) in the order of members, for every member that has a reward; empty if there is a reason."""
    reason: str | None = None
    """no_rewards, or no_spread: all members did equally well, so nothing says where to go."""


class Estimator(Protocol):
    """Turns the rewards of one population into weights. Pure; the order of rewards must not matter.

    Responsibilities: say a weight for every member that has a reward, or a reason code; never a number that
    is not finite. Read by `step.make_step`, which sums sign * w over the members of a seed.
    """

    def __call__(self, rewards: Sequence[EpisodeReward]) -> Estimate:
        """The weights for these rewards."""
        ...


def member_means(rewards: Sequence[EpisodeReward]) -> list[tuple[int, float]]:
    """(member, mean of the rewards of its episodes) in the order of members.

    Sums are exact before they are rounded (fsum), so that the order of episodes cannot change a bit.
    """
    by_member: dict[int, list[float]] = {}
    for item in rewards:
        by_member.setdefault(item.member, []).append(item.reward)
    return [(member, mean(values)) for member, values in sorted(by_member.items())]


def zscore(rewards: Sequence[EpisodeReward]) -> Estimate:
    """w_i = (r_i - mean(r)) / std(r), std with ddof 0, r_i being the mean over a member's episodes.

    Source: arXiv 2509.24372 and arXiv 2608.17310, section 3; they add 1e-8 to the denominator, here a
    population without spread makes no step instead. Spread counts as none below 1e-12 of the largest reward,
    where it is the rounding of the means and nothing else. Reason codes: no_rewards, no_spread.
    """
    means = member_means(rewards)
    if not means:
        return Estimate((), "no_rewards")
    values = [value for _, value in means]
    largest = max(abs(value) for value in values)
    if largest == 0:
        return Estimate((), "no_spread")
    # Scaled to at most 1, so that squares neither overflow nor vanish.
    scaled = [value / largest for value in values]
    centre = mean(scaled)
    spread = std(scaled)
    if spread <= 1e-12:
        return Estimate((), "no_spread")
    return Estimate(
        tuple((member, (value - centre) / spread) for (member, _), value in zip(means, scaled, strict=True))
    )


def mean(values: Sequence[float]) -> float:
    """The mean. Values are divided before they are added where their sum would overflow."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def std(values: Sequence[float]) -> float:
    """The standard deviation with ddof 0, finite for every list of finite values."""
    largest = max(abs(value) for value in values)
    if largest == 0:
        return 0.0
    scaled = [value / largest for value in values]
    centre = mean(scaled)
    return largest * math.sqrt(math.fsum((value - centre) ** 2 for value in scaled) / len(scaled))
