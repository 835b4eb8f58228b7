"""The life of one population: opened at a version, leased to episodes, rewarded, complete.

A `Population` is a value. Every function takes one and returns the next; whoever holds it decides when the
change is real. Counting is per member, so one change costs one member's tally, not the population's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from seedbed_server.learner.estimators import EpisodeReward
from seedbed_server.learner.seeds import derive_seed

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Member",
    "Population",
    "Stale",
    "Tally",
    "all_rewards",
    "assign",
    "complete_members",
    "episode_rewards",
    "explored",
    "is_complete",
    "lease",
    "open_population",
    "release",
    "reward_episode",
    "rewarded_members",
    "waiting_for",
    "withdraw",
]


@dataclass(frozen=True, slots=True)
class Member:
    """One perturbation of a population: theta + sign sigma eps(seed)."""

    index: int
    seed: int
    sign: int


@dataclass(frozen=True, slots=True)
class Tally:
    """What one member has been given so far."""

    episodes: int = 0
    groups: Mapping[str, int] = field(default_factory=dict)
    """Episodes for each group; those without a group are in `episodes` alone."""
    rewards: Mapping[str, EpisodeReward] = field(default_factory=dict)
    """Reward by episode id."""


@dataclass(frozen=True, slots=True)
class Stale:
    """A member of an earlier population whose episodes went on over an update: what they earned counts here
    (`stale.reward_stale`).
    """

    population: int
    member: Member
    behind: int
    """Versions between the one that its population explored around and that of this population."""
    weight: float
    rewards: Mapping[str, EpisodeReward]
    """Reward by episode id."""


@dataclass(frozen=True, slots=True)
class Population:
    """The members that explore between two updates, and how far they have got."""

    number: int
    version: int
    sigma: float
    episodes_per_member: int
    members: tuple[Member, ...]
    tallies: tuple[Tally, ...]
    opened_at: float | None = None
    """Seconds since the epoch; None: it has no deadline."""
    stale: tuple[Stale, ...] = ()
    """In the order of (population, index of the member)."""


def open_population(
    *,
    number: int,
    version: int,
    sigma: float,
    size: int,
    episodes_per_member: int,
    mirrored: bool,
    run_seed: int,
    reuse: int = 1,
    opened_at: float | None = None,
) -> Population:
    """A population without episodes. Mirrored: members 2j and 2j + 1 are + and - of one seed.

    `reuse` populations in a row explore the same seeds (numbers 0 to reuse - 1, and so on), so that an engine
    keeps their factors and tasks that come again meet the same directions; their steps stay within the span
    of those seeds. A population that made no step is one of them, and changing it within a run meets the
    seeds of old populations again. (EGGROLL, arXiv 2511.16652, has it as noise_reuse.)

    Raises ValueError for a size below 2 (nothing to compare), an odd mirrored size, episodes_per_member or
    reuse below 1, or a sigma that is not finite and above 0.
    """
    if size < 2:
        raise ValueError(f"population_size: {size} leaves nothing to compare; use 2 or more")
    if mirrored and size % 2:
        raise ValueError(
            f"population_size: {size} is odd, and mirrored members come in pairs; use an even number"
        )
    if episodes_per_member < 1:
        raise ValueError(f"episodes_per_member: {episodes_per_member} is too few; use 1 or more")
    if reuse < 1:
        raise ValueError(f"noise_reuse: {reuse} uses no noise; use 1 for new seeds in every population")
    if not math.isfinite(sigma) or sigma <= 0:
        raise ValueError(f"sigma: {sigma} does not perturb; use a finite number above 0")
    draw = number // reuse
    if mirrored:
        members = tuple(
            Member(i, derive_seed(run_seed, draw, i // 2), -1 if i % 2 else 1) for i in range(size)
        )
    else:
        members = tuple(Member(i, derive_seed(run_seed, draw, i), 1) for i in range(size))
    return Population(number, version, sigma, episodes_per_member, members, (Tally(),) * size, opened_at)


def lease(population: Population, group: str | None) -> tuple[Population, Member]:
    """Gives the next episode its member.

    Fewest episodes for its group first, then fewest episodes at all, then the lowest index.
    """

    def order(member: Member) -> tuple[int, int, int]:
        tally = population.tallies[member.index]
        same = tally.groups.get(group, 0) if group is not None else 0
        return same, tally.episodes, member.index

    member = min(population.members, key=order)
    return assign(population, member.index, group), member


def assign(population: Population, member: int, group: str | None) -> Population:
    """Counts one episode more for a member."""
    return _count(population, member, group, 1)


def release(population: Population, member: int, group: str | None) -> Population:
    """Takes an episode back that never got an answer."""
    return _count(population, member, group, -1)


def reward_episode(
    population: Population, member: int, episode_id: str, group: str | None, reward: float
) -> Population:
    """Sets the reward of one episode; a later call for the same episode replaces it."""
    tally = population.tallies[member]
    rewards = {**tally.rewards, episode_id: EpisodeReward(member, group, reward)}
    return _with_tally(population, member, replace(tally, rewards=rewards))


def withdraw(population: Population, episode_id: str) -> Population:
    """Takes the reward of an episode back, stale or not: more will follow before it counts."""
    for index, tally in enumerate(population.tallies):
        if episode_id in tally.rewards:
            rewards = {name: item for name, item in tally.rewards.items() if name != episode_id}
            return _with_tally(population, index, replace(tally, rewards=rewards))
    kept = []
    for item in population.stale:
        rewards = {name: reward for name, reward in item.rewards.items() if name != episode_id}
        if rewards:
            kept.append(replace(item, rewards=rewards))
    return replace(population, stale=tuple(kept))


def complete_members(population: Population) -> int:
    """How many members have all their rewards."""
    return sum(len(tally.rewards) >= population.episodes_per_member for tally in population.tallies)


def is_complete(population: Population) -> bool:
    """Whether every member has its rewards, so that the population can close."""
    return complete_members(population) == len(population.members)


def rewarded_members(population: Population) -> int:
    """How many members have a reward at all: those who can take part in a step."""
    return sum(bool(tally.rewards) for tally in population.tallies)


def episode_rewards(population: Population) -> tuple[EpisodeReward, ...]:
    """The rewards of its own members by member, and within one by episode id: the order does not depend on
    who came first.
    """
    return tuple(tally.rewards[episode] for tally in population.tallies for episode in sorted(tally.rewards))


def explored(population: Population) -> tuple[tuple[Member, float], ...]:
    """(member, weight) of all that a step can move along: its own members, then the stale ones, whose
    indices go on from the size.
    """
    size = len(population.members)
    return (
        *((member, 1.0) for member in population.members),
        *(
            (replace(item.member, index=size + place), item.weight)
            for place, item in enumerate(population.stale)
        ),
    )


def all_rewards(population: Population) -> tuple[EpisodeReward, ...]:
    """What an estimator compares: `episode_rewards`, then those of stale members, by the indices and with
    the weights of `explored`.
    """
    size = len(population.members)
    late = (
        replace(item.rewards[episode], member=size + place, weight=item.weight)
        for place, item in enumerate(population.stale)
        for episode in sorted(item.rewards)
    )
    return (*episode_rewards(population), *late)


def waiting_for(population: Population) -> str:
    """One sentence for people: what the next update waits for."""
    missing = [
        (index, max(0, population.episodes_per_member - len(tally.rewards)))
        for index, tally in enumerate(population.tallies)
    ]
    need = [(index, count) for index, count in missing if count]
    if not need:
        return "nothing: every member has its rewards"
    total = sum(count for _, count in need)
    shown = ", ".join(str(index) for index, _ in need[:8]) + (", ..." if len(need) > 8 else "")
    rewards = "1 reward" if total == 1 else f"{total} rewards"
    return f"{rewards} for {'member' if len(need) == 1 else 'members'} {shown}"


def _count(population: Population, member: int, group: str | None, by: int) -> Population:
    tally = population.tallies[member]
    groups = tally.groups
    if group is not None:
        groups = {**groups, group: max(0, groups.get(group, 0) + by)}
    return _with_tally(
        population, member, replace(tally, episodes=max(0, tally.episodes + by), groups=groups)
    )


def _with_tally(population: Population, member: int, tally: Tally) -> Population:
    tallies = population.tallies
    return replace(population, tallies=(*tallies[:member], tally, *tallies[member + 1 :]))
