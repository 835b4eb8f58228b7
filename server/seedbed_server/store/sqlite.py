"""SQLite as a store: a file in WAL mode that waits for the disk at every commit."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

__all__ = ["engine"]


def engine(url: sa.URL, *, writes: bool) -> sa.Engine:
    """An engine whose transactions begin as writers, or one that only reads."""
    made = sa.create_engine(url)

    # The driver's own transactions start too late and end too early for us: it is put into autocommit, and
    # BEGIN is said here.
    @sa.event.listens_for(made, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        if writes:
            cursor.execute("PRAGMA journal_mode=WAL")
        else:
            cursor.execute("PRAGMA query_only=ON")
        for pragma in ("synchronous=FULL", "foreign_keys=ON", "busy_timeout=10000"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @sa.event.listens_for(made, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return made
