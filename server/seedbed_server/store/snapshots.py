"""Snapshots on record, and which of them are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from seedbed_server.store import tables
from seedbed_server.store.rows import SnapshotRow, columns, to_row

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ASIDE", "GOOD", "PRUNED", "good", "insert", "kept", "mark"]

GOOD, PRUNED, ASIDE = "good", "pruned", "aside"


def insert(connection: sa.Connection, row: SnapshotRow) -> None:
    """Adds a snapshot; its id is chosen here."""
    values = {name: value for name, value in columns(row).items() if name != "id"}
    connection.execute(sa.insert(tables.snapshots).values(**values))


def good(connection: sa.Connection) -> list[SnapshotRow]:
    """Those that were whole when they were looked at last, oldest version first."""
    query = (
        sa.select(tables.snapshots)
        .where(tables.snapshots.c.state == GOOD)
        .order_by(tables.snapshots.c.version, tables.snapshots.c.id)
    )
    return [to_row(SnapshotRow, row) for row in connection.execute(query)]


def mark(connection: sa.Connection, folder: str, state: str, reason: str | None = None) -> None:
    """Says what became of the good snapshot in a folder."""
    connection.execute(
        sa.update(tables.snapshots)
        .where(tables.snapshots.c.folder == folder, tables.snapshots.c.state == GOOD)
        .values(state=state, reason=reason)
    )


def kept(versions: Iterable[int], newest: int) -> set[int]:
    """Which of these versions keep their snapshot: the newest ones, and older ones ever further apart.

    Of all versions that are at least 2^k and less than 2^(k+1) behind the newest one, the oldest is kept, so
    that the number of snapshots grows with the logarithm of the number of versions.

    Args:
        versions: those that have a snapshot.
        newest: how many of the newest are kept in any case, at least 1.
    """
    order = sorted(set(versions), reverse=True)
    keep = set(order[:newest])
    oldest: dict[int, int] = {}
    for version in order[newest:]:
        oldest[(order[0] - version).bit_length()] = version
    return keep | set(oldest.values())
