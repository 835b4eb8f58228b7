"""What each group usually earns, from everything that was rewarded before: a baseline to compare with.

Online, the members of one population see different tasks and a group may come back days later. The history
keeps one running mean and one count for each group. Rewards of explored episodes and of controls (those that
the unperturbed live model answered) both go in, when a population closes: within one call their order does
not matter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from seedbed_server.learner.estimators import EpisodeReward, Estimate, Estimator, mean
from seedbed_server.learner.groups import relative_to

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Baseline", "History", "baseline_of", "from_json", "group_baseline", "observe", "to_json"]

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Baseline:
    """A running mean."""

    count: int = 0
    """Rewards in the mean, at most the memory."""
    mean: float = 0.0
    """Meaningless while the count is 0."""
    seen: int = 0
    """The population in which the last of them came."""


@dataclass(frozen=True, slots=True)
class History:
    """Baselines by group, and one over all rewards, with a group or without."""

    groups: Mapping[str, Baseline] = field(default_factory=dict)
    everything: Baseline = Baseline()


def observe(
    history: History,
    rewards: Iterable[tuple[str | None, float]],
    *,
    population: int,
    memory: int | None = None,
    keep: int = 100_000,
) -> History:
    """The history with the rewards of a population and of the controls beside it: (group, reward) each.

    mean' = (c mean + sum(r)) / (c + n),  c = min(count, memory - n), not below 0

    A memory of m rewards lets the mean follow a model that improves: what is older fades with 1 - n / m for
    each population. None never forgets. At most `keep` groups stay, those seen last, equals by name.
    Call it once for a population, after its step was made: an episode must not be its own baseline. Raises
    ValueError for a reward that is not finite, and for a memory or a `keep` below 1.
    """
    if memory is not None and memory < 1:
        raise ValueError(f"memory: {memory} remembers nothing; use 1 or more, or none to never forget")
    if keep < 1:
        raise ValueError(f"keep: {keep} keeps no group; use 1 or more")
    every: list[float] = []
    by_group: dict[str, list[float]] = {}
    for group, reward in rewards:
        if not math.isfinite(reward):
            raise ValueError(f"reward: {reward} of group {group!r} is not finite; leave it out")
        every.append(reward)
        if group is not None:
            by_group.setdefault(group, []).append(reward)
    if not every:
        return history
    groups = dict(history.groups)
    for group, values in by_group.items():
        groups[group] = _extended(groups.get(group, Baseline()), values, population, memory)
    if len(groups) > keep:
        newest = sorted(groups, key=lambda name: (-groups[name].seen, name))[:keep]
        groups = {name: groups[name] for name in newest}
    return History(groups, _extended(history.everything, every, population, memory))


def baseline_of(history: History, group: str | None, prior: float = 1.0) -> float:
    """What to expect of a group: (count mean + prior m) / (count + prior), m being the mean of everything.

    `prior` is how many rewards the mean of everything is worth: a group that was seen once is not judged by
    one reward. A group without history, and an episode without group, get m; without any history it is 0.
    """
    everything = history.everything.mean if history.everything.count else 0.0
    known = history.groups.get(group) if group is not None else None
    if known is None or not known.count:
        return everything
    share = known.count / (known.count + prior)
    return share * known.mean + (1.0 - share) * everything


def group_baseline(history: History, prior: float = 1.0) -> Estimator:
    """w_i = c_i (a_i - mean(a)) / std(a),  a_i = mean over the episodes of i of (r - baseline_of(group)).

    The baseline takes the difficulty of the task out; centring takes out what all members share, namely how
    far the model has come since. Without history this is the z-score. No member has to share its group with
    another: for online traffic. Source: a baseline of each state in the sense of Williams, Machine Learning 8
    (1992), kept as a running mean for each prompt as in SPO, arXiv 2509.13232; the shrinkage towards the mean
    of everything is the usual empirical-Bayes one. A wrong baseline adds variance and no bias, since it
    depends on nothing of this population. Reason codes: no_rewards, one_survivor, no_spread. Raises
    ValueError for a prior that is negative or not finite.
    """
    if not math.isfinite(prior) or prior < 0:
        raise ValueError(f"prior: {prior} is not a number of rewards; use a finite number of at least 0")

    def estimate(rewards: Sequence[EpisodeReward]) -> Estimate:
        groups = {item.group for item in rewards}
        return relative_to(rewards, {group: baseline_of(history, group, prior) for group in groups})

    return estimate


def to_json(history: History) -> str:
    """The history as JSON; `from_json` gives back the same to the last bit."""
    groups = {name: [item.count, item.mean, item.seen] for name, item in sorted(history.groups.items())}
    every = history.everything
    everything = [every.count, every.mean, every.seen]
    return json.dumps(
        {"format": _FORMAT, "everything": everything, "groups": groups},
        allow_nan=False,
        separators=(",", ":"),
        ensure_ascii=False,
    )


def from_json(text: str) -> History:
    """The history that `to_json` wrote. Raises ValueError for any other text."""
    try:
        data: Any = json.loads(text, parse_constant=_refuse)
        if data["format"] != _FORMAT:
            raise ValueError(f"format {data['format']!r}")
        groups = {str(name): _baseline(item) for name, item in data["groups"].items()}
        return History(groups, _baseline(data["everything"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"history: not a history of groups ({error}); use a text that to_json wrote, or start without one"
        ) from None


def _extended(baseline: Baseline, values: Sequence[float], population: int, memory: int | None) -> Baseline:
    new = len(values)
    old = baseline.count if memory is None else min(baseline.count, max(0, memory - new))
    # Shares, not sums: a sum of large rewards overflows.
    share = new / (old + new)
    middle = share * mean(values) + ((1.0 - share) * baseline.mean if old else 0.0)
    count = old + new if memory is None else min(memory, old + new)
    return replace(baseline, count=count, mean=middle, seen=population)


def _baseline(item: Any) -> Baseline:
    count, middle, seen = item
    if not (isinstance(count, int) and count >= 0 and isinstance(seen, int) and math.isfinite(middle)):
        raise ValueError(f"baseline {item!r}")
    return Baseline(count, float(middle), seen)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a mean")
