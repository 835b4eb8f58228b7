"""What learning remembers from one population to the next: small values by name."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from seedbed_server.store import tables

__all__ = ["GUARD", "HISTORY", "PAUSE", "forget", "get", "put"]

GUARD, HISTORY, PAUSE = "guard", "history", "pause"
"""The guard over the controls; what groups have earned; why nothing is explored, while that is so."""


def get(connection: sa.Connection, name: str) -> Any:
    """The value of a name, or None."""
    query = sa.select(tables.learning.c.value).where(tables.learning.c.name == name)
    return connection.execute(query).scalar_one_or_none()


def put(connection: sa.Connection, name: str, value: Any) -> None:
    """Sets the value of a name; it must be JSON and not None."""
    changed = connection.execute(
        sa.update(tables.learning).where(tables.learning.c.name == name).values(value=value)
    )
    if not changed.rowcount:
        connection.execute(sa.insert(tables.learning).values(name=name, value=value))


def forget(connection: sa.Connection, name: str) -> None:
    """Removes a name."""
    connection.execute(sa.delete(tables.learning).where(tables.learning.c.name == name))
