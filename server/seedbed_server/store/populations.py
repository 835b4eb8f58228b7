"""Populations and their members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from seedbed_server.store import tables
from seedbed_server.store.rows import MemberRow, PopulationRow, columns, to_row

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["close", "find", "find_open", "insert", "last_closed", "members_of"]


def insert(connection: sa.Connection, population: PopulationRow, members: Sequence[MemberRow]) -> None:
    """Adds a population with its members."""
    connection.execute(sa.insert(tables.populations).values(**columns(population)))
    connection.execute(sa.insert(tables.members), [columns(member) for member in members])


def find_open(connection: sa.Connection) -> PopulationRow | None:
    """The open population; there is at most one."""
    # From the newest on, which is where it is.
    query = (
        sa.select(tables.populations)
        .where(tables.populations.c.closed_at.is_(None))
        .order_by(tables.populations.c.number.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else to_row(PopulationRow, row)


def last_closed(connection: sa.Connection) -> PopulationRow | None:
    """The newest population that is closed."""
    query = (
        sa.select(tables.populations)
        .where(tables.populations.c.closed_at.is_not(None))
        .order_by(tables.populations.c.number.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else to_row(PopulationRow, row)


def members_of(connection: sa.Connection, population: int) -> list[MemberRow]:
    """The members of a population in their order."""
    query = (
        sa.select(tables.members)
        .where(tables.members.c.population == population)
        .order_by(tables.members.c.index)
    )
    return [to_row(MemberRow, row) for row in connection.execute(query)]


def close(
    connection: sa.Connection,
    number: int,
    *,
    at: float,
    outcome: str,
    reward_mean: float | None,
    reward_spread: float | None,
    closing: str | None = None,
    report: dict[str, Any] | None = None,
) -> None:
    """Closes a population with what came of it."""
    connection.execute(
        sa.update(tables.populations)
        .where(tables.populations.c.number == number)
        .values(
            closed_at=at,
            outcome=outcome,
            reward_mean=reward_mean,
            reward_spread=reward_spread,
            closing=closing,
            report=report,
        )
    )


def find(connection: sa.Connection, number: int) -> PopulationRow | None:
    """The population of a number."""
    query = sa.select(tables.populations).where(tables.populations.c.number == number)
    row = connection.execute(query).one_or_none()
    return None if row is None else to_row(PopulationRow, row)
