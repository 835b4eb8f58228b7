"""Populations between the store's rows and the learner's values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seedbed_server.gateway.plan import RewardRules
from seedbed_server.gateway.totals import totals
from seedbed_server.learner import Member, Population, reward_stale
from seedbed_server.learner.population import Tally, assign, reward_episode, withdraw
from seedbed_server.store import episodes, populations, rewards
from seedbed_server.store.rows import MemberRow, PopulationRow

if TYPE_CHECKING:
    import sqlalchemy as sa

    from seedbed_server.gateway.verdicts import Counted
    from seedbed_server.store.rows import EpisodeRow

__all__ = ["apply", "has_reward", "load_population", "member_of", "save_population"]


def load_population(connection: sa.Connection, rules: RewardRules | None = None) -> Population | None:
    """The open population with everything that its members have, and stale ones with them."""
    row = populations.find_open(connection)
    if row is None:
        return None
    members = populations.members_of(connection, row.number)
    population = Population(
        number=row.number,
        version=row.version,
        sigma=row.sigma,
        episodes_per_member=row.episodes_per_member,
        members=tuple(Member(member.index, member.seed, member.sign) for member in members),
        tallies=(Tally(),) * len(members),
        opened_at=row.opened_at,
    )
    return _filled(connection, population, rules or RewardRules())


def _filled(connection: sa.Connection, population: Population, rules: RewardRules) -> Population:
    rows = rewards.of_population(connection, population.number)
    rewarded = totals(connection, rows, rules.aggregation)
    for episode in episodes.of_population(connection, population.number):
        assert episode.member is not None
        total = rewarded.get(episode.id)
        if total is None and episode.status != "open":
            # It ended without a reward: its member is free for another.
            continue
        population = assign(population, episode.member, episode.group)
        if total is not None:
            population = reward_episode(population, episode.member, episode.id, episode.group, total)
    weights = {row.episode_id: 1.0 if row.weight is None else row.weight for row in rows}
    versions: dict[int, int] = {}
    for episode in episodes.rewarded_in(connection, population.number):
        origin = episode.population
        if origin is None or origin == population.number:
            continue
        if origin not in versions:
            found = populations.find(connection, origin)
            assert found is not None
            versions[origin] = found.version
        behind = population.version - versions[origin]
        population = _stale(population, episode, rewarded[episode.id], behind, weights[episode.id])
    return population


def apply(population: Population, counted: Counted) -> Population:
    """The population after the rewards of one episode have changed, as `load_population` would find it."""
    episode, total = counted.episode, counted.total
    if total is None:
        return withdraw(population, episode.id)
    if episode.population != population.number:
        assert counted.behind is not None
        return _stale(population, episode, total, counted.behind, counted.weight)
    assert episode.member is not None
    if counted.had_ended and episode.id not in population.tallies[episode.member].rewards:
        # It had been given up when it ended.
        population = assign(population, episode.member, episode.group)
    return reward_episode(population, episode.member, episode.id, episode.group, total)


def has_reward(population: Population, episode_id: str) -> bool:
    """Whether an episode counts in the population."""
    return any(episode_id in tally.rewards for tally in population.tallies) or any(
        episode_id in item.rewards for item in population.stale
    )


def member_of(episode: EpisodeRow) -> Member:
    """The member that answers an episode."""
    assert episode.member is not None
    assert episode.seed is not None
    assert episode.sigma is not None
    return Member(episode.member, episode.seed, 1 if episode.sigma > 0 else -1)


def save_population(connection: sa.Connection, population: Population) -> None:
    """Writes a population that has no episodes yet."""
    assert population.opened_at is not None
    populations.insert(
        connection,
        PopulationRow(
            population.number,
            population.version,
            population.sigma,
            population.episodes_per_member,
            population.opened_at,
        ),
        [MemberRow(population.number, m.index, m.seed, m.sign) for m in population.members],
    )


def _stale(
    population: Population, episode: EpisodeRow, total: float, behind: int, weight: float
) -> Population:
    assert episode.population is not None
    return reward_stale(
        population,
        origin=episode.population,
        member=member_of(episode),
        behind=behind,
        weight=weight,
        episode_id=episode.id,
        group=episode.group,
        reward=total,
    )
