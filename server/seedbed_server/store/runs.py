"""The run that a store holds: one base model, and the gateways that took it over."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from seedbed_server.store import tables
from seedbed_server.store.errors import StoreMismatch
from seedbed_server.store.rows import RunRow, columns, to_row

__all__ = ["check_identity", "find", "insert", "take_over"]


def find(connection: sa.Connection) -> RunRow | None:
    """The run, or None in a new store."""
    row = connection.execute(sa.select(tables.runs)).one_or_none()
    return None if row is None else to_row(RunRow, row)


def insert(connection: sa.Connection, run: RunRow) -> None:
    """Puts the run into a new store."""
    connection.execute(sa.insert(tables.runs).values(id=1, **columns(run)))


def take_over(connection: sa.Connection, settings: dict[str, Any]) -> int:
    """Raises the term by one for the gateway that starts now, and keeps its settings. Returns the term."""
    term: int = connection.execute(
        sa.update(tables.runs)
        .values(term=tables.runs.c.term + 1, settings=settings)
        .returning(tables.runs.c.term)
    ).scalar_one()
    return term


def check_identity(run: RunRow, loaded: RunRow, store: str) -> None:
    """Raises StoreMismatch if the run's weights cannot be those of the loaded model."""
    for name in ("base_digest", "dtype", "scope", "noise_version", "rank"):
        kept, now = getattr(run, name), getattr(loaded, name)
        if kept != now:
            if isinstance(kept, bytes):
                kept, now = kept.hex(), now.hex()
            raise StoreMismatch(
                f"{name}: the store {store} belongs to {kept} (model {run.model!r}) and the loaded model "
                f"{loaded.model!r} has {now}; start with that model and setting, or choose another --store"
            )
