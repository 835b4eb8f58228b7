"""What is watched at every step: its size, and the health of the rewards that it is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from seedbed_server.learner.estimators import mean
from seedbed_server.learner.step import fl32

if TYPE_CHECKING:
    from collections.abc import Iterable

    from seedbed_server.learner.step import Statistics, Step

__all__ = [
    "Duration",
    "Finding",
    "Limits",
    "Traffic",
    "dropped_shares",
    "expected_norm",
    "expected_rms",
    "limit_step",
    "rewards_by_duration",
    "watch",
]


def expected_rms(step: Step) -> float:
    """The root mean square of a step over the weights: alpha / N * sqrt(sum_s c_s^2), c_s by seed.

    Expected, not measured: every entry of a perturbation has variance 1 and different seeds are independent,
    so that E ||step||^2 = (alpha / N)^2 sum_s c_s^2 d over d weights. For one-sided z-scores it is
    alpha / sqrt(N) (arXiv 2509.24372's update). For weights of norms it is relative to the weight. Low rank
    makes the entries of one seed dependent: the expectation stays, a single step scatters more about it.
    """
    # vector_multiplier * coefficient * noise integer is the step, and the integer has variance 8.
    return step.vector_multiplier * math.sqrt(8.0) * math.hypot(*step.coefficients)


def expected_norm(step: Step, weights: int) -> float:
    """The Euclidean norm that is expected over a number of weights: expected_rms * sqrt(weights)."""
    return expected_rms(step) * math.sqrt(weights)


def limit_step(step: Step, bound: float) -> Step:
    """The step, made shorter where its expected root mean square is above the bound, in the same direction.

    alpha, both multipliers and decay shrink by one factor; the journal then tells the alpha that was used.
    Raises ValueError for a bound that is not finite and above 0, or that no float32 multiplier can keep.
    """
    if not math.isfinite(bound) or bound <= 0:
        raise ValueError(f"step_bound: {bound} lets no step through; use a finite number above 0")
    size = expected_rms(step)
    if size <= bound:
        return step
    factor = bound / size
    matrix, vector = fl32(step.matrix_multiplier * factor), fl32(step.vector_multiplier * factor)
    if matrix == 0:
        raise ValueError(f"step_bound: {bound} leaves nothing of a step of {size:g}; use a larger one")
    return replace(
        step,
        alpha=step.alpha * factor,
        matrix_multiplier=matrix,
        vector_multiplier=vector,
        decay=fl32(step.decay * factor),
    )


@dataclass(frozen=True, slots=True)
class Traffic:
    """What was counted while a population was open. Counts that do not exist are 0; shares of nothing are
    never computed.
    """

    episodes: int = 0
    """Leased."""
    dropped: int = 0
    """Of those: ended, or left behind at the deadline, without a reward that counts."""
    completions: int = 0
    truncated: int = 0
    """Of those: ended by their length (finish reason `length`)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a figure becomes a finding; None: it is not watched."""

    least_spread: float | None = None
    """Standard deviation of the members' raw rewards."""
    most_dropped: float | None = None
    """Share of the episodes, 0 to 1."""
    most_truncated: float | None = None
    """Share of the completions, 0 to 1."""

    def __post_init__(self) -> None:
        """Raises ValueError for a limit that cannot be one."""
        if self.least_spread is not None and not (
            math.isfinite(self.least_spread) and self.least_spread >= 0
        ):
            raise ValueError(f"least_spread: {self.least_spread} is no spread; use 0 or more, or none")
        for name in ("most_dropped", "most_truncated"):
            share = getattr(self, name)
            if share is not None and not 0 <= share <= 1:
                raise ValueError(f"{name}: {share} is no share; use 0 to 1, or none")


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure that is beyond its limit."""

    code: str
    """low_spread, many_dropped or many_truncated."""
    value: float
    limit: float
    message: str


def watch(statistics: Statistics | None, traffic: Traffic, limits: Limits) -> tuple[Finding, ...]:
    """What an operator should know about a population, by limits. A missing figure is no finding."""
    found = []
    spread, least = statistics.spread if statistics else None, limits.least_spread
    if spread is not None and least is not None and spread < least:
        text = "members hardly differ: raise sigma, or give rewards that tell answers apart"
        found.append(
            Finding("low_spread", spread, least, f"spread {spread:.3g} is below {least:.3g}; {text}")
        )
    for code, what, part, whole, most, text in (
        (
            "many_dropped",
            "episodes without a reward",
            traffic.dropped,
            traffic.episodes,
            limits.most_dropped,
            "long episodes go first: give more time, or look for agents that do not post",
        ),
        (
            "many_truncated",
            "truncated completions",
            traffic.truncated,
            traffic.completions,
            limits.most_truncated,
            "raise max_tokens, or sigma is too large for the model to come to an end",
        ),
    ):
        if most is not None and whole > 0 and part / whole > most:
            share = part / whole
            found.append(Finding(code, share, most, f"{what}: {share:.0%}, above {most:.0%}; {text}"))
    return tuple(found)


def dropped_shares(episodes: Iterable[tuple[int, bool]]) -> tuple[tuple[int, float], ...]:
    """(member, share dropped) in the order of members, from (member, whether it was dropped) by episode.

    A member far above the others is one whose episodes take longer, or break agents: its reward is the mean
    over those that came through, and flatters it.
    """
    counts: dict[int, tuple[int, int]] = {}
    for member, dropped in episodes:
        lost, total = counts.get(member, (0, 0))
        counts[member] = (lost + dropped, total + 1)
    return tuple((member, lost / total) for member, (lost, total) in sorted(counts.items()))


@dataclass(frozen=True, slots=True)
class Duration:
    """Episodes that took about as long as each other."""

    longest: float
    """Seconds."""
    episodes: int
    reward_mean: float


def rewards_by_duration(episodes: Iterable[tuple[float, float]], parts: int = 4) -> tuple[Duration, ...]:
    """The mean reward by how long episodes took, in `parts` parts of equal size: (seconds, reward) each.

    Where it rises or falls from part to part, a deadline that drops the long ones changes what is learnt.
    Equals in time stay in the order of their rewards. Empty for fewer episodes than parts.
    """
    ordered = sorted(episodes)
    count = len(ordered)
    if count < parts:
        return ()
    cut = [ordered[count * part // parts : count * (part + 1) // parts] for part in range(parts)]
    return tuple(Duration(piece[-1][0], len(piece), mean([reward for _, reward in piece])) for piece in cut)
