"""Episodes and their completions."""

from __future__ import annotations

import sqlalchemy as sa

from seedbed_server.store import tables
from seedbed_server.store.rows import CompletionEnd, CompletionRow, EpisodeRow, columns, to_row

__all__ = [
    "drop",
    "end_completion",
    "find",
    "find_completion",
    "insert",
    "insert_completion",
    "lose_running",
    "of_population",
]


def insert(connection: sa.Connection, episode: EpisodeRow) -> None:
    """Adds an episode."""
    connection.execute(sa.insert(tables.episodes).values(**columns(episode)))


def insert_completion(connection: sa.Connection, completion: CompletionRow) -> None:
    """Adds a completion that starts now."""
    connection.execute(sa.insert(tables.completions).values(**columns(completion)))


def end_completion(connection: sa.Connection, completion_id: str, end: CompletionEnd) -> None:
    """Says how a completion ended."""
    connection.execute(
        sa.update(tables.completions).where(tables.completions.c.id == completion_id).values(**columns(end))
    )


def drop(connection: sa.Connection, episode_id: str) -> None:
    """Marks an episode that never got an answer."""
    connection.execute(
        sa.update(tables.episodes).where(tables.episodes.c.id == episode_id).values(status="dropped")
    )


def find(connection: sa.Connection, episode_id: str) -> EpisodeRow | None:
    """The episode of an id, dropped ones as well."""
    row = connection.execute(
        sa.select(tables.episodes).where(tables.episodes.c.id == episode_id)
    ).one_or_none()
    return None if row is None else to_row(EpisodeRow, row)


def find_completion(connection: sa.Connection, completion_id: str) -> str | None:
    """The episode of a completion."""
    query = sa.select(tables.completions.c.episode_id).where(tables.completions.c.id == completion_id)
    return connection.execute(query).scalar_one_or_none()


def of_population(connection: sa.Connection, population: int) -> list[EpisodeRow]:
    """The episodes that count for the members of a population, oldest first."""
    query = (
        sa.select(tables.episodes)
        .where(tables.episodes.c.population == population, tables.episodes.c.status != "dropped")
        .order_by(tables.episodes.c.created_at, tables.episodes.c.id)
    )
    return [to_row(EpisodeRow, row) for row in connection.execute(query)]


def lose_running(connection: sa.Connection, at: float) -> int:
    """Marks the completions that a gateway before this one left behind. Returns how many."""
    return connection.execute(
        sa.update(tables.completions)
        .where(tables.completions.c.status == "running")
        .values(status="lost", finished_at=at)
    ).rowcount
