"""Episodes that go on over an update: how much their reward still says.

Such an episode keeps its seed, sign and sigma, and plays its remaining turns on newer weights. Its own
population is closed, so what it earned goes to the open one, as a member of its own with a weight. Its sigma
is not corrected for: between neighbouring versions of a schedule it hardly differs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from seedbed_server.learner.estimators import EpisodeReward
from seedbed_server.learner.population import Stale

if TYPE_CHECKING:
    from seedbed_server.learner.population import Member, Population

__all__ = ["StaleRules", "Staleness", "reward_stale", "staleness"]


@dataclass(frozen=True, slots=True)
class StaleRules:
    """Which stale episodes count, and how much."""

    limit: int = 1
    """Versions behind at most; 0: only those whose population closed without a step."""
    weight: float = 1.0
    """For episodes that are a version or more behind."""

    def __post_init__(self) -> None:
        """Raises ValueError for rules that nothing can satisfy."""
        if self.limit < 0:
            raise ValueError(f"stale_limit: {self.limit} is not a number of versions; use 0 or more")
        if not math.isfinite(self.weight) or not 0 < self.weight <= 1:
            raise ValueError(
                f"stale_weight: {self.weight} is no weight; use a number above 0 and at most 1, "
                "or stale_limit 0 to count none"
            )


@dataclass(frozen=True, slots=True)
class Staleness:
    """How far an episode is behind, and what follows."""

    behind: int
    weight: float | None
    """None: its reward is recorded and not used."""
    message: str
    """For the agent; says why the reward is not used, where it is not."""


def staleness(version: int, now: int, rules: StaleRules) -> Staleness:
    """The staleness of an episode whose population explored around `version`, at version `now`.

    0 behind means that its population closed and made no step: its reward is as good as ever, and counts
    whole. Raises ValueError for a version after `now`.
    """
    behind = now - version
    if behind < 0:
        raise ValueError(f"version: {version} is after the live one, {now}; give the episode's own")
    if behind > rules.limit:
        return Staleness(
            behind,
            None,
            f"the episode is {_versions(behind)} behind, and at most {rules.limit} count: the reward is on "
            "record and is not used",
        )
    weight = rules.weight if behind else 1.0
    return Staleness(behind, weight, f"the episode is {_versions(behind)} behind: it counts {weight:g}")


def reward_stale(
    population: Population,
    *,
    origin: int,
    member: Member,
    behind: int,
    weight: float,
    episode_id: str,
    group: str | None,
    reward: float,
) -> Population:
    """Sets the reward of a stale episode; a later call for the same episode replaces it.

    `origin` is the number of the population that leased the member to it. Nothing else changes: a population
    does not wait for stale members, and never leases one. Raises ValueError for an origin that is not an
    earlier population.
    """
    if origin >= population.number:
        raise ValueError(
            f"population: {origin} is not before {population.number}; use reward_episode for its own members"
        )
    item = EpisodeReward(member.index, group, reward, weight)
    by_origin = {(known.population, known.member.index): known for known in population.stale}
    known = by_origin.get((origin, member.index))
    rewards = {**(known.rewards if known else {}), episode_id: item}
    by_origin[origin, member.index] = Stale(origin, member, behind, weight, rewards)
    return replace(population, stale=tuple(by_origin[key] for key in sorted(by_origin)))


def _versions(count: int) -> str:
    return "1 version" if count == 1 else f"{count} versions"
