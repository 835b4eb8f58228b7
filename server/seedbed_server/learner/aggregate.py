"""From what was posted to the one reward of an episode: bounds first, then aggregation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from seedbed_server.learner.estimators import mean

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Aggregation", "Bounds", "Rule", "aggregate", "bounded", "total_reward"]

_LARGEST = math.nextafter(math.inf, 0.0)

Rule: TypeAlias = Literal["mean", "sum", "last", "discounted-sum"]


@dataclass(frozen=True, slots=True)
class Aggregation:
    """How the rewards of completions become the reward of their episode."""

    rule: Rule = "mean"
    discount: float = 1.0
    """gamma of the discounted sum, above 0 to 1."""

    def __post_init__(self) -> None:
        """Raises ValueError for a rule that is not known, or a discount outside its range."""
        if self.rule not in get_args(Rule):
            raise ValueError(
                f"aggregation: {self.rule!r} is not known; use one of {', '.join(get_args(Rule))}"
            )
        if not 0 < self.discount <= 1:
            raise ValueError(f"discount: {self.discount} is no discount; use a number above 0 and at most 1")
        if self.discount != 1 and self.rule != "discounted-sum":
            raise ValueError(
                f"discount: {self.discount} is not used by {self.rule!r}; use discounted-sum, or leave it 1"
            )


@dataclass(frozen=True, slots=True)
class Bounds:
    """What rewards are expected to be; None: no bound on that side."""

    low: float | None = None
    high: float | None = None
    clip: bool = False
    """Move a reward that is outside to the bound; otherwise it is refused."""

    def __post_init__(self) -> None:
        """Raises ValueError for bounds that are not finite, or that leave no room."""
        for name, value in (("low", self.low), ("high", self.high)):
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{name}: {value} bounds nothing; use a finite number or none")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"low: {self.low} is not below high, {self.high}; use a smaller one")


def bounded(reward: float, bounds: Bounds | None = None) -> float:
    """The reward as it counts. Raises ValueError for one that is not finite or, unless the bounds clip, not
    within them. Infinities are refused by clipping bounds too: they say that an agent is broken.
    """
    if not math.isfinite(reward):
        raise ValueError(f"reward: {reward} is not finite; post a number, or nothing where there is none")
    if bounds is None:
        return reward
    low = -math.inf if bounds.low is None else bounds.low
    high = math.inf if bounds.high is None else bounds.high
    if low <= reward <= high:
        return reward
    if not bounds.clip:
        raise ValueError(f"reward: {reward} is outside {low:g} to {high:g}; post one within the bounds")
    return min(max(reward, low), high)


def aggregate(rewards: Sequence[float | None], aggregation: Aggregation | None = None) -> float | None:
    """One reward from those of the completions of an episode, in the order in which they were asked for.

    mean            sum_t r_t / n over the n that have a reward (default)
    sum             sum_t r_t
    last            the newest that has a reward
    discounted-sum  sum_t gamma^t r_t, t = 0 for the first completion of the episode

    None is a completion without a reward: it is left out, never 0, and keeps its place t. None if there is no
    reward at all. A sum that overflows is held at the largest float of its sign.
    """
    aggregation = aggregation or Aggregation()
    present = [(place, reward) for place, reward in enumerate(rewards) if reward is not None]
    if not present:
        return None
    values = [reward for _, reward in present]
    if aggregation.rule == "mean":
        return mean(values)
    if aggregation.rule == "last":
        return values[-1]
    if aggregation.rule == "sum":
        return _sum(values)
    return _sum([aggregation.discount**place * reward for place, reward in present])


def total_reward(
    whole: float | None, rewards: Sequence[float | None], aggregation: Aggregation | None = None
) -> float | None:
    """The reward of an episode: the one that was posted for it as a whole stands, whatever its completions
    have; without one it is their aggregate.
    """
    return aggregate(rewards, aggregation) if whole is None else whole


def _sum(values: Sequence[float]) -> float:
    try:
        return math.fsum(values)
    except OverflowError:
        total = len(values) * math.fsum(value / len(values) for value in values)
        return min(max(total, -_LARGEST), _LARGEST)
