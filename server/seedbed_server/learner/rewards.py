"""What becomes of a reward: a closed set of answers, decided by a pure function.

A reward has a target: an episode, one of its completions, or one choice of a completion. The newest reward of
a target counts; those before it stay on record. `reward_id` makes a post repeatable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from seedbed_server.learner.estimators import mean

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Given",
    "Known",
    "Result",
    "Target",
    "Verdict",
    "completion_reward",
    "episode_reward",
    "judge",
]

Result: TypeAlias = Literal["accepted", "duplicate", "replaced", "late", "conflict", "unknown"]


@dataclass(frozen=True, slots=True)
class Given:
    """A reward as it was posted."""

    episode_id: str | None
    completion_id: str | None
    reward: float
    reward_id: str | None = None
    choice: int | None = None
    """Index of the choice; None: for the completion as a whole."""


@dataclass(frozen=True, slots=True)
class Target:
    """The episode, the completion or the choice that a reward is for, as the store knows it."""

    episode_id: str
    completion_id: str | None
    population: int | None
    """None: answered by the unperturbed live model, a control."""
    population_open: bool
    choice: int | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """A reward that is already on record."""

    episode_id: str
    completion_id: str | None
    reward: float
    choice: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens to a reward, and what the agent is told."""

    result: Result
    message: str
    store: bool
    """Whether a row is kept."""
    counts: bool
    """Whether it is the target's reward from now on."""


def judge(given: Given, target: Target | None, same_id: Known | None, current: Known | None) -> Verdict:
    """Decides about one reward.

    target: what the posted id names, or None. same_id: the reward on record under the posted reward_id.
    current: the reward that the target has now. First match wins:

    unknown    no such episode or completion
    duplicate  this reward_id is on record with this value for this target
    conflict   this reward_id is on record with another value or target
    late       the target's population is closed: recorded, not used
    replaced   the target had a reward; this one counts instead
    accepted   it counts
    """
    if target is None:
        return Verdict("unknown", _unknown(given), store=False, counts=False)
    here = (target.episode_id, target.completion_id, target.choice)
    if same_id is not None:
        there = (same_id.episode_id, same_id.completion_id, same_id.choice)
        if there == here and same_id.reward == given.reward:
            return Verdict("duplicate", "this reward is already on record", store=False, counts=False)
        return Verdict("conflict", _conflict(given, target, same_id), store=False, counts=False)
    if target.population is not None and not target.population_open:
        message = f"population {target.population} is closed: the reward is on record and is not used"
        return Verdict("late", message, store=True, counts=False)
    control = " for the live model, as a control: it moves no weights" if target.population is None else ""
    if current is not None:
        message = f"the reward {current.reward!r} before it no longer counts{control and ';'}{control}"
        return Verdict("replaced", message, store=True, counts=True)
    return Verdict("accepted", f"on record{control}", store=True, counts=True)


def episode_reward(by_target: Mapping[str | None, float]) -> float | None:
    """The reward of an episode from the rewards that count: keys are completion ids, None for the episode
    itself.

    A reward of the episode as a whole stands; without one it is the mean over its rewarded completions. None
    if there is no reward: a missing reward is missing, never 0.
    """
    if None in by_target:
        return by_target[None]
    if not by_target:
        return None
    return mean([by_target[key] for key in sorted(key for key in by_target if key is not None)])


def completion_reward(by_choice: Mapping[int | None, float]) -> float | None:
    """The reward of a completion: that of the whole (key None), or else the mean over its rewarded
    choices.
    """
    if None in by_choice:
        return by_choice[None]
    if not by_choice:
        return None
    return mean([by_choice[key] for key in sorted(key for key in by_choice if key is not None)])


def _unknown(given: Given) -> str:
    if given.choice is not None:
        return (
            f"choice: {given.choice} of completion {given.completion_id!r} is not known; "
            "use the `index` of one of its choices"
        )
    if given.completion_id is not None:
        return (
            f"completion_id: {given.completion_id!r} is not known; use the id of a completion, "
            "or the value of its x-seedbed-completion header"
        )
    return f"episode_id: {given.episode_id!r} is not known; use that of an x-seedbed-episode header"


def _conflict(given: Given, target: Target, known: Known) -> str:
    if known.reward != given.reward:
        return (
            f"reward_id: {given.reward_id!r} is on record with the reward {known.reward!r}, and "
            f"{given.reward!r} was posted; post a changed reward under another reward_id, or under none"
        )
    return (
        f"reward_id: {given.reward_id!r} is on record for {_named(known)}, and {_named(target)} was posted; "
        "use a reward_id once"
    )


def _named(target: Known | Target) -> str:
    name = target.completion_id or target.episode_id
    return name if target.choice is None else f"choice {target.choice} of {name}"
