"""How much of a step is signal: the benefit of its direction, with its standard error.

To first order theta + sigma sign_i E_i earns f_i = f + sigma sign_i <g, E_i>, g being the gradient. A step
alpha (1/N) sum_i w_i sign_i E_i then gains

    (alpha / sigma) B,   B = (1/N) sum_i w_i (f_i - f),

exactly and for any noise. Rewards scatter: what a member earned is r_i = f_i + e_i, and since w was made
from r, replacing f_i by r_i would take the luck for benefit (with z-scores it would always give the spread).
So the luck is taken out, as a whole:

    reliability L = 1 - (n - 2)/(n - 1) V / S        share of the spread between members that is real
    benefit     B = L C,     C = (1/N) sum_i w_i (r_i - mean(r))
    error^2     = L+ V (1/N^2) sum_i w_i^2 + C^2 (1 - L)^2 (2/(n - 1) + 2/k)

S is the variance between members (ddof 1), V that of r_i given the member: the variance v of one episode's
reward over the episodes of a member, in the mean over members. v comes from members that have several
episodes (pooled, k degrees of freedom), or from the controls, which have the same scatter and no
perturbation. L is a James-Stein factor (Morris, JASA 78, 1983) without its positive part, which is L+; with
n - 2 where that has n - 3, B (of z-scores, C being their spread) is 0 on average over populations of pure
luck. The error is that of B given C, plus the delta method for L; it takes luck for normal and of one size in
all members. Stale members count like any other here.

Curvature is not in it: a step that is too long loses although its direction is right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seedbed_server.learner.estimators import mean, member_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seedbed_server.learner.estimators import EpisodeReward, Estimate

__all__ = ["Benefit", "Scatter", "benefit", "scatter_of_controls", "scatter_within"]


@dataclass(frozen=True, slots=True)
class Scatter:
    """How much the reward of one episode scatters, the model being the same."""

    variance: float
    degrees: int
    """Degrees of freedom of that estimate, above 0."""


@dataclass(frozen=True, slots=True)
class Benefit:
    """What a direction is worth, in the unit of rewards for alpha = sigma."""

    value: float
    error: float
    """Standard error of the value."""
    reliability: float
    """1: all of the spread between members is real; 0 or less: it is luck."""


def scatter_within(rewards: Sequence[EpisodeReward]) -> Scatter | None:
    """From the members that have several episodes; None if there are none.

    Where members see different tasks, give residuals (`groups.residuals`): the task is no luck.
    """
    by_member: dict[int, list[float]] = {}
    for item in rewards:
        by_member.setdefault(item.member, []).append(item.reward)
    degrees = sum(len(values) - 1 for values in by_member.values())
    if not degrees:
        return None
    return Scatter(sum(map(_squares, by_member.values())) / degrees, degrees)


def scatter_of_controls(rewards: Sequence[float]) -> Scatter | None:
    """From the rewards of controls (ddof 1); None for fewer than two. The same tasks, or residuals."""
    if len(rewards) < 2:
        return None
    degrees = len(rewards) - 1
    return Scatter(_squares(rewards) / degrees, degrees)


def benefit(rewards: Sequence[EpisodeReward], estimate: Estimate, scatter: Scatter | None) -> Benefit | None:
    """The benefit of the direction that an estimate made from these rewards gives.

    For any estimator; group estimators compare residuals, so give those here as well. None where it cannot be
    known: no step, no scatter (one episode for each member and no controls), fewer than 4 members, members
    that all did equally well, or rewards whose squares are no floats.
    """
    values = member_values(rewards)
    if estimate.reason is not None or scatter is None or len(values) < 4:
        return None
    count = len(values)
    middle = mean([item.value for item in values])
    between = _squares([item.value for item in values]) / (count - 1)
    if between == 0 or not math.isfinite(between) or not math.isfinite(scatter.variance):
        return None
    episodes: dict[int, int] = {}
    for item in rewards:
        episodes[item.member] = episodes.get(item.member, 0) + 1
    luck = scatter.variance * mean([1 / episodes[item.member] for item in values])
    lost = (count - 2) / (count - 1) * luck / between
    weights = dict(estimate.weights)
    covariance = math.fsum(weights[item.member] * (item.value - middle) for item in values) / count
    reliability = 1 - lost
    posterior = max(reliability, 0.0) * luck * math.fsum(weight**2 for weight in weights.values()) / count**2
    unsure = (covariance * lost) ** 2 * (2 / (count - 1) + 2 / scatter.degrees)
    return Benefit(reliability * covariance, math.sqrt(posterior + unsure), reliability)


def _squares(values: Sequence[float]) -> float:
    """The sum of squares about the mean; infinite where it leaves the floats."""
    middle = mean(values)
    try:
        return math.fsum((value - middle) * (value - middle) for value in values)
    except OverflowError:
        return math.inf
