"""Episodes and their completions."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import sqlalchemy as sa

from seedbed_server.store import tables
from seedbed_server.store.rows import CompletionEnd, CompletionRow, EpisodeRow, columns, to_row

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = [
    "completion_order",
    "conversations",
    "count_completions",
    "drop",
    "end",
    "end_completion",
    "expired",
    "find",
    "find_by_key",
    "find_many",
    "find_owners",
    "idle",
    "insert",
    "insert_completion",
    "lose_running",
    "of_population",
    "rewarded_in",
    "set_metadata",
    "traffic",
]


# What every request does is put together once: building a statement costs more than running it.
_INSERT, _INSERT_COMPLETION = sa.insert(tables.episodes), sa.insert(tables.completions)
_END_COMPLETION = (
    sa.update(tables.completions)
    .where(tables.completions.c.id == sa.bindparam("completion_id"))
    .values({field.name: sa.bindparam(field.name) for field in fields(CompletionEnd)})
)


def insert(connection: sa.Connection, *rows: EpisodeRow) -> None:
    """Adds episodes."""
    if rows:
        connection.execute(_INSERT, [columns(row) for row in rows])


def insert_completion(connection: sa.Connection, *rows: CompletionRow) -> None:
    """Adds completions that start now."""
    if rows:
        connection.execute(_INSERT_COMPLETION, [columns(row) for row in rows])


def end_completion(connection: sa.Connection, *ended: tuple[str, CompletionEnd]) -> None:
    """Says how completions ended, each with its id."""
    if ended:
        values = [{**columns(end), "completion_id": completion_id} for completion_id, end in ended]
        connection.execute(_END_COMPLETION, values)


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


def set_metadata(connection: sa.Connection, episode_id: str, metadata: dict[str, str] | None) -> None:
    """Replaces what an episode's requests said of it."""
    connection.execute(
        sa.update(tables.episodes).where(tables.episodes.c.id == episode_id).values(metadata=metadata)
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


def find_many(connection: sa.Connection, episode_ids: Collection[str]) -> dict[str, EpisodeRow]:
    """The episodes of some ids, dropped ones as well; those that are not known are left out."""
    query = sa.select(tables.episodes).where(tables.episodes.c.id.in_(episode_ids))
    return {row.id: to_row(EpisodeRow, row) for row in connection.execute(query)} if episode_ids else {}


def find_owners(connection: sa.Connection, completion_ids: Collection[str]) -> dict[str, tuple[str, int]]:
    """The episode of each of some completions, and how many choices it was asked for."""
    done = tables.completions.c
    query = sa.select(done.id, done.episode_id, done.choices).where(done.id.in_(completion_ids))
    return {row[0]: (row[1], row[2]) for row in connection.execute(query)} if completion_ids else {}


def conversations(connection: sa.Connection, since: float) -> list[tuple[bytes, str, str, bytes, float]]:
    """What implicit episodes go on from: client, episode, route, digests and time of their completions,
    oldest first.
    """
    done, opened = tables.completions.c, tables.episodes.c
    query = (
        sa.select(opened.client, opened.id, done.route, done.conversation, done.finished_at)
        .join(tables.episodes, opened.id == done.episode_id)
        .where(done.finished_at > since, done.conversation.is_not(None), opened.client.is_not(None))
        .order_by(done.finished_at)
    )
    return [(row[0], row[1], row[2], row[3], row[4]) for row in connection.execute(query)]


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


def rewarded_in(connection: sa.Connection, population: int) -> list[EpisodeRow]:
    """The episodes with a reward that counts in a population: its own, stale ones, and controls beside it."""
    rewarded = sa.select(tables.rewards.c.episode_id).where(
        tables.rewards.c.population == population, tables.rewards.c.counts
    )
    query = (
        sa.select(tables.episodes)
        .where(tables.episodes.c.id.in_(rewarded))
        .order_by(tables.episodes.c.created_at, tables.episodes.c.id)
    )
    return [to_row(EpisodeRow, row) for row in connection.execute(query)]


def completion_order(connection: sa.Connection, episode_ids: Sequence[str]) -> dict[str, list[str]]:
    """The completions of episodes in the order in which they were asked for."""
    found: dict[str, list[str]] = {}
    done = tables.completions.c
    for first in range(0, len(episode_ids), 500):
        query = (
            sa.select(done.episode_id, done.id)
            .where(done.episode_id.in_(episode_ids[first : first + 500]))
            .order_by(done.created_at, done.id)
        )
        for episode_id, completion_id in connection.execute(query):
            found.setdefault(episode_id, []).append(completion_id)
    return found


def idle(connection: sa.Connection, since: float, limit: int, only: str | None = None) -> list[str]:
    """Ids of open episodes of which no completion runs, started or ended after `since`, at most `limit`.

    only: looks at this one.
    """
    done = tables.completions.c
    busy = sa.exists().where(
        done.episode_id == tables.episodes.c.id,
        sa.or_(done.status == "running", done.created_at > since, done.finished_at > since),
    )
    query = (
        sa.select(tables.episodes.c.id)
        .where(tables.episodes.c.status == "open", tables.episodes.c.created_at <= since, ~busy)
        .order_by(tables.episodes.c.created_at)
        .limit(limit)
    )
    if only is not None:
        query = query.where(tables.episodes.c.id == only)
    return list(connection.execute(query).scalars())


def traffic(connection: sa.Connection, population: int) -> tuple[int, int, dict[str, float]]:
    """The completions of a population's episodes, those of them that were truncated, and when the last one of
    each episode ended.
    """
    done = tables.completions.c
    query = (
        sa.select(
            done.episode_id,
            sa.func.count(),
            sa.func.sum(sa.case((done.finish_reasons.like("%length%"), 1), else_=0)),
            sa.func.max(done.finished_at),
        )
        .join(tables.episodes, tables.episodes.c.id == done.episode_id)
        .where(tables.episodes.c.population == population, done.status == "finished")
        .group_by(done.episode_id)
    )
    rows = connection.execute(query).all()
    return sum(row[1] for row in rows), sum(row[2] for row in rows), {row[0]: row[3] for row in rows}
