"""The journal: every update and rollback as its record, chained by SHA-256, with what people want to know."""

from __future__ import annotations

import hashlib

import sqlalchemy as sa

from seedbed_server.store import tables
from seedbed_server.store.errors import StoreError
from seedbed_server.store.rows import Applied, JournalRow, columns, to_row

__all__ = [
    "GENESIS",
    "ROLLBACK",
    "UPDATE",
    "after",
    "append",
    "find",
    "last",
    "last_update",
    "link",
    "mark_applied",
    "verified",
    "whole",
]

GENESIS = bytes(32)
"""The chain value before the first record."""
UPDATE, ROLLBACK = "update", "rollback"
"""Kinds of records."""


def link(before: bytes, record: bytes) -> bytes:
    """The chain value of a record: SHA-256 over the one before it and the record's bytes."""
    return hashlib.sha256(before + record).digest()


def append(connection: sa.Connection, row: JournalRow) -> None:
    """Adds a record."""
    connection.execute(sa.insert(tables.journal).values(**columns(row)))


def mark_applied(connection: sa.Connection, version: int, applied: Applied) -> None:
    """Keeps what the engine said when it had applied a record."""
    connection.execute(
        sa.update(tables.journal).where(tables.journal.c.version == version).values(**columns(applied))
    )


def last(connection: sa.Connection) -> JournalRow | None:
    """The newest record."""
    query = sa.select(tables.journal).order_by(tables.journal.c.version.desc()).limit(1)
    row = connection.execute(query).one_or_none()
    return None if row is None else to_row(JournalRow, row)


def find(connection: sa.Connection, version: int) -> JournalRow | None:
    """The record that makes a version."""
    row = connection.execute(
        sa.select(tables.journal).where(tables.journal.c.version == version)
    ).one_or_none()
    return None if row is None else to_row(JournalRow, row)


def last_update(connection: sa.Connection) -> JournalRow | None:
    """The newest update that an engine has applied, also if a rollback took it back."""
    query = (
        sa.select(tables.journal)
        .where(tables.journal.c.kind == UPDATE, tables.journal.c.digest.is_not(None))
        .order_by(tables.journal.c.version.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else to_row(JournalRow, row)


def after(connection: sa.Connection, version: int, limit: int) -> list[JournalRow]:
    """At most `limit` records that make versions above `version`, in order."""
    query = (
        sa.select(tables.journal)
        .where(tables.journal.c.version > version)
        .order_by(tables.journal.c.version)
        .limit(limit)
    )
    return [to_row(JournalRow, row) for row in connection.execute(query)]


def whole(connection: sa.Connection) -> list[JournalRow]:
    """All records in order, whatever they are worth."""
    query = sa.select(tables.journal).order_by(tables.journal.c.version)
    return [to_row(JournalRow, row) for row in connection.execute(query)]


def verified(connection: sa.Connection) -> list[JournalRow]:
    """All records in order. Raises StoreError if a version is missing or a record is not what was written."""
    chain = GENESIS
    rows = whole(connection)
    for expected, row in enumerate(rows, start=1):
        if row.version != expected:
            raise StoreError(
                f"journal: version {expected} is missing (the next one is {row.version}); "
                "restore the store from a backup"
            )
        chain = link(chain, row.record)
        if chain != row.chain:
            raise StoreError(
                f"journal: the record of version {row.version} is not the one that was written; "
                "restore the store from a backup"
            )
    return rows
