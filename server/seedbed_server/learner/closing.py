"""When a population closes, and when an episode has been given up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from seedbed_server.learner.population import is_complete, release, rewarded_members

if TYPE_CHECKING:
    from collections.abc import Iterable

    from seedbed_server.learner.population import Population

__all__ = ["CloseReason", "Closing", "OpenEpisode", "close_reason", "expire", "idle", "look_again", "needed"]

CloseReason: TypeAlias = Literal["complete", "deadline", "given_up"]


@dataclass(frozen=True, slots=True)
class Closing:
    """How long a population waits, and for how many."""

    deadline_seconds: float | None = None
    """From its opening; then it closes with a quorum. None: it waits for every member."""
    quorum: float = 0.5
    """Share of the members that must have a reward at the deadline, above 0 to 1; never fewer than 2."""
    give_up_seconds: float | None = None
    """From its opening; then it closes without a quorum, and makes no step. None: it waits on."""

    def __post_init__(self) -> None:
        """Raises ValueError for rules that contradict each other."""
        deadline, give_up = self.deadline_seconds, self.give_up_seconds
        if deadline is not None and not (math.isfinite(deadline) and deadline > 0):
            raise ValueError(
                f"deadline: {deadline} s is no time; use seconds above 0, or none to wait for all"
            )
        if not 0 < self.quorum <= 1:
            raise ValueError(f"quorum: {self.quorum} is no share; use a number above 0 and at most 1")
        if give_up is not None and (deadline is None or not math.isfinite(give_up) or give_up < deadline):
            raise ValueError(
                f"give_up: {give_up} s is not after the deadline, {deadline} s; set a later time"
            )


def needed(population: Population, rules: Closing) -> int:
    """The quorum as a number of members: the share rounded up, at least 2. For `make_step` as well."""
    # The small number undoes the rounding of the product: 0.07 of 100 members are 7, not 8.
    return max(2, math.ceil(rules.quorum * len(population.members) - 1e-9))


def close_reason(population: Population, now: float, rules: Closing | None = None) -> CloseReason | None:
    """Why the population closes at `now` (seconds since the epoch), or None: it stays open.

    complete  every member has its rewards
    deadline  the deadline has passed and the quorum has a reward: the rest is left out of the step
    given_up  the second deadline has passed without a quorum: no step (too_few_members), and new seeds

    First match wins. Without rules, or without the time that it was opened at, only complete. A population
    without any reward stays open for ever: closing it would gain nothing. A deadline drops long episodes
    first; what they earn later can still count as stale (`stale`), and `watch.dropped_shares` says whom it
    hits.
    """
    if is_complete(population):
        return "complete"
    rules = rules or Closing()
    present = rewarded_members(population)
    if rules.deadline_seconds is None or population.opened_at is None or not present:
        return None
    age = now - population.opened_at
    if age >= rules.deadline_seconds and present >= needed(population, rules):
        return "deadline"
    if rules.give_up_seconds is not None and age >= rules.give_up_seconds:
        return "given_up"
    return None


def look_again(population: Population, now: float, rules: Closing) -> float | None:
    """Seconds until `close_reason` can change by the passing of time alone; None: only a reward can change
    it.
    """
    if population.opened_at is None:
        return None
    times = (rules.deadline_seconds, rules.give_up_seconds)
    ahead = [
        population.opened_at + seconds - now
        for seconds in times
        if seconds is not None and population.opened_at + seconds > now
    ]
    return min(ahead) if ahead and rewarded_members(population) else None


@dataclass(frozen=True, slots=True)
class OpenEpisode:
    """An episode that has not ended, as far as idleness goes."""

    id: str
    member: int | None
    """None: a control."""
    group: str | None
    last_active: float
    """When its newest completion started or ended; seconds since the epoch."""
    running: bool = False
    """A completion of it is being written: it is not idle, however long that takes."""
    rewarded: bool = False
    """It has what its member needs: it ends, and its member stays taken."""


def idle(episodes: Iterable[OpenEpisode], now: float, idle_seconds: float) -> tuple[OpenEpisode, ...]:
    """The episodes that nobody has used for `idle_seconds`, in their order.

    Raises ValueError for a time that is not above 0.
    """
    if not idle_seconds > 0:
        raise ValueError(f"idle: {idle_seconds} s ends every episode at once; use seconds above 0")
    return tuple(item for item in episodes if not item.running and now - item.last_active >= idle_seconds)


def expire(population: Population, episodes: Iterable[OpenEpisode]) -> Population:
    """The population without its idle episodes: their members are free for others.

    Those with a reward keep their place, and controls have none.
    """
    for item in episodes:
        if item.member is not None and not item.rewarded:
            population = release(population, item.member, item.group)
    return population
