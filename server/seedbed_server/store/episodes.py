"""Episodes and their completions."""

from __future__ import annotations

import sqlalchemy as sa

from seedbed_server.store import tables
from seedbed_server.store.rows import CompletionEnd, CompletionRow, EpisodeRow, columns, to_row

__all__ = [
    "conversations",
    "count_completions",
    "drop",
    "end",
    "end_completion",
    "expired",
    "find",
    "find_by_key",
    "find_choices",
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


def end(connection: sa.Connection, episode_id: str, status: str, at: float) -> bool:
    """Closes an open episode (`closed` or `expired`). Returns whether it was open."""
    return bool(
        connection.execute(
            sa.update(tables.episodes)
            .where(tables.episodes.c.id == episode_id, tables.episodes.c.status == "open")
            .values(status=status, ended_at=at)
        ).rowcount
    )


def expired(connection: sa.Connection, now: float, limit: int) -> list[str]:
    """Ids of open episodes whose time has passed, at most `limit`."""
    query = (
        sa.select(tables.episodes.c.id)
        .where(tables.episodes.c.expires_at <= now, tables.episodes.c.status == "open")
        .limit(limit)
    )
    return list(connection.execute(query).scalars())


def find(connection: sa.Connection, episode_id: str) -> EpisodeRow | None:
    """The episode of an id, dropped ones as well."""
    row = connection.execute(
        sa.select(tables.episodes).where(tables.episodes.c.id == episode_id)
    ).one_or_none()
    return None if row is None else to_row(EpisodeRow, row)


def find_by_key(connection: sa.Connection, key_hash: bytes) -> EpisodeRow | None:
    """The episode of a session key."""
    row = connection.execute(
        sa.select(tables.episodes).where(tables.episodes.c.key_hash == key_hash)
    ).one_or_none()
    return None if row is None else to_row(EpisodeRow, row)


def count_completions(connection: sa.Connection, episode_id: str) -> int:
    """How many completions of an episode were begun."""
    query = (
        sa.select(sa.func.count())
        .select_from(tables.completions)
        .where(tables.completions.c.episode_id == episode_id)
    )
    return int(connection.execute(query).scalar_one())


def find_choices(connection: sa.Connection, completion_id: str) -> int | None:
    """How many choices a completion was asked for."""
    query = sa.select(tables.completions.c.choices).where(tables.completions.c.id == completion_id)
    return connection.execute(query).scalar_one_or_none()


def conversations(connection: sa.Connection, since: float) -> list[tuple[bytes, str, bytes, float]]:
    """What implicit episodes go on from: client, episode, digests and time of their completions, oldest
    first.
    """
    done, opened = tables.completions.c, tables.episodes.c
    query = (
        sa.select(opened.client, opened.id, done.conversation, done.finished_at)
        .join(tables.episodes, opened.id == done.episode_id)
        .where(done.finished_at > since, done.conversation.is_not(None), opened.client.is_not(None))
        .order_by(done.finished_at)
    )
    return [(row[0], row[1], row[2], row[3]) for row in connection.execute(query)]


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
