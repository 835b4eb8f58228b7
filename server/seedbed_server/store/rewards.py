"""Rewards: what was posted, and which of them count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from seedbed_server.store import tables
from seedbed_server.store.rows import RewardRow, columns, to_row

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = [
    "by_id",
    "by_ids",
    "discount",
    "insert",
    "of_episode",
    "of_episodes",
    "of_population",
    "place",
    "supersede",
]


def insert(connection: sa.Connection, *added: RewardRow) -> None:
    """Adds rewards in their order."""
    connection.execute(sa.insert(tables.rewards), [columns(reward) for reward in added])


def supersede(
    connection: sa.Connection, episode_id: str, completion_id: str | None, choice: int | None = None
) -> None:
    """Takes the count from the reward that a target has."""
    connection.execute(
        sa.update(tables.rewards)
        .where(*_target(episode_id, completion_id, choice))
        .values(counts=False, population=None, weight=None)
    )


def by_id(connection: sa.Connection, reward_id: str) -> RewardRow | None:
    """The reward that was posted under a reward_id."""
    row = connection.execute(
        sa.select(tables.rewards).where(tables.rewards.c.reward_id == reward_id)
    ).one_or_none()
    return None if row is None else to_row(RewardRow, row)


def by_ids(connection: sa.Connection, reward_ids: Collection[str]) -> dict[str, RewardRow]:
    """The rewards that were posted under some reward_ids."""
    query = sa.select(tables.rewards).where(tables.rewards.c.reward_id.in_(reward_ids))
    return {row.reward_id: to_row(RewardRow, row) for row in connection.execute(query)} if reward_ids else {}


def of_episodes(connection: sa.Connection, episode_ids: Collection[str]) -> dict[str, list[RewardRow]]:
    """The rewards of some episodes that count, their completions' too, oldest first."""
    found: dict[str, list[RewardRow]] = {name: [] for name in episode_ids}
    query = (
        sa.select(tables.rewards)
        .where(tables.rewards.c.episode_id.in_(episode_ids), tables.rewards.c.counts)
        .order_by(tables.rewards.c.id)
    )
    for row in connection.execute(query) if episode_ids else ():
        found[row.episode_id].append(to_row(RewardRow, row))
    return found


def place(connection: sa.Connection, episode_id: str, population: int | None, weight: float | None) -> None:
    """Says in which population the rewards of an episode count; None: in none yet."""
    connection.execute(
        sa.update(tables.rewards)
        .where(tables.rewards.c.episode_id == episode_id, tables.rewards.c.counts)
        .values(population=population, weight=weight)
    )


def discount(connection: sa.Connection, episode_id: str) -> None:
    """Takes the count from all rewards of an episode."""
    connection.execute(
        sa.update(tables.rewards)
        .where(tables.rewards.c.episode_id == episode_id, tables.rewards.c.counts)
        .values(counts=False, population=None, weight=None)
    )


def of_episode(connection: sa.Connection, episode_id: str) -> list[RewardRow]:
    """The rewards of an episode that count, its completions' too, oldest first."""
    query = (
        sa.select(tables.rewards)
        .where(tables.rewards.c.episode_id == episode_id, tables.rewards.c.counts)
        .order_by(tables.rewards.c.id)
    )
    return [to_row(RewardRow, row) for row in connection.execute(query)]


def of_population(connection: sa.Connection, population: int) -> list[RewardRow]:
    """The rewards that count in a population, stale ones and those of the controls beside it included, oldest
    first.
    """
    query = (
        sa.select(tables.rewards)
        .where(tables.rewards.c.population == population, tables.rewards.c.counts)
        .order_by(tables.rewards.c.id)
    )
    return [to_row(RewardRow, row) for row in connection.execute(query)]


def _target(
    episode_id: str, completion_id: str | None, choice: int | None
) -> tuple[sa.ColumnElement[bool], ...]:
    # `==` with None is IS NULL.
    return (
        tables.rewards.c.episode_id == episode_id,
        tables.rewards.c.completion_id == completion_id,
        tables.rewards.c.choice == choice,
        tables.rewards.c.counts,
    )
