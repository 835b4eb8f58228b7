"""What a journal says: which updates make a version, and whether all of it holds together.

Versions are consecutive and nothing is ever taken out. A rollback is a record of its own, which makes a new
version with the weights of an older one; so the way from the base to a version, its lineage, are the updates
before it less those that rollbacks took back.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import sqlalchemy as sa
from google.protobuf.message import DecodeError

from seedbed.v1.engine_pb2 import UpdateRecord
from seedbed.v1.journal_pb2 import RollbackRecord
from seedbed_server.store import tables
from seedbed_server.store.errors import StoreError
from seedbed_server.store.journal import GENESIS, ROLLBACK, UPDATE, link

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from seedbed_server.store.rows import JournalRow

__all__ = [
    "Finding",
    "digest_of",
    "examine",
    "lineage",
    "lineage_versions",
    "record_of",
    "require_sound",
    "rollbacks",
    "rolled_back_within",
    "update_of",
    "updates_in_lineage",
]

Record: TypeAlias = UpdateRecord | RollbackRecord

DIGEST_BYTES = 32


@dataclass(frozen=True)
class Finding:
    """Something in a journal that does not hold."""

    version: int
    problem: str

    def __str__(self) -> str:
        return f"version {self.version}: {self.problem}"


def record_of(row: JournalRow) -> Record:
    """The message of a row. Raises StoreError for bytes that are none, or one of another version or kind."""
    record: Record
    try:
        if row.kind == UPDATE:
            record = UpdateRecord.FromString(row.record)
        elif row.kind == ROLLBACK:
            record = RollbackRecord.FromString(row.record)
        else:
            raise StoreError(f"kind: {row.kind!r} is not known; use the release that wrote this journal")
    except DecodeError as error:
        raise StoreError(f"record: these {len(row.record)} bytes are no {row.kind} ({error})") from None
    if record.version != row.version:
        raise StoreError(f"record: it makes version {record.version} and stands at version {row.version}")
    return record


def update_of(row: JournalRow) -> UpdateRecord:
    """The message of a row that is an update. Raises StoreError."""
    record = record_of(row)
    if not isinstance(record, UpdateRecord):
        raise StoreError(f"record: version {row.version} is a {row.kind} and no update")
    return record


def rollbacks(connection: sa.Connection) -> dict[int, int]:
    """The older version that each version made by a rollback has its weights from."""
    query = sa.select(tables.journal.c.version, tables.journal.c.record).where(
        tables.journal.c.kind == ROLLBACK
    )
    return {
        version: int(RollbackRecord.FromString(data).to_version)
        for version, data in connection.execute(query)
    }


def rolled_back_within(connection: sa.Connection, after: int, upto: int) -> bool:
    """Whether a rollback made one of the versions above `after`, up to `upto`."""
    version = tables.journal.c.version
    query = (
        sa.select(version).where(version > after, version <= upto, tables.journal.c.kind == ROLLBACK).limit(1)
    )
    return connection.execute(query).scalar_one_or_none() is not None


def lineage_versions(back: Mapping[int, int], version: int) -> list[int]:
    """Versions of the updates that make `version`, rising.

    Args:
        back: the older version of each version that a rollback made.
        version: 0 for the base, which no update makes.
    """
    points = sorted(back)
    parts: list[range] = []
    while True:
        place = bisect_right(points, version)
        if not place:
            parts.append(range(1, version + 1))
            return [v for part in reversed(parts) for v in part]
        point = points[place - 1]
        parts.append(range(point + 1, version + 1))
        if back[point] >= point:
            raise StoreError(f"version {point}: it goes back to {back[point]}, which is not older")
        version = back[point]


def updates_in_lineage(connection: sa.Connection, version: int) -> int:
    """How many updates make a version: what schedules go by, so that a rollback takes them back as well."""
    return len(lineage_versions(rollbacks(connection), version))


def lineage(rows: Sequence[JournalRow], version: int) -> list[JournalRow]:
    """The updates that make `version`, in order. `rows`: a whole journal, at least up to that version."""
    back = {}
    for row in rows:
        record = record_of(row) if row.kind == ROLLBACK else None
        if isinstance(record, RollbackRecord):
            back[row.version] = int(record.to_version)
    return [rows[v - 1] for v in lineage_versions(back, version)]


def digest_of(rows: Sequence[JournalRow], version: int, start_digest: bytes) -> bytes:
    """The digest of a version on record. Raises StoreError for one that no engine has applied."""
    if not version:
        return start_digest
    digest = rows[version - 1].digest if version <= len(rows) else None
    if digest is None:
        raise StoreError(f"version: {version} is not published; the newest one is {_published(rows)}")
    return digest


def examine(rows: Sequence[JournalRow], start_digest: bytes | None) -> list[Finding]:
    """Everything that does not hold in a whole journal, in its order; empty for a sound one.

    Checked are: versions follow one another from 1; each record parses and makes the version that it stands
    at; each chain value is the SHA-256 over the one before it and the record; each record was made for the
    digest that the version before it has on record (`start_digest` for the first); a rollback goes back to an
    older version and has its digest; only the last record may be unapplied.
    """
    findings: list[Finding] = []
    chain = GENESIS
    digests: dict[int, bytes | None] = {0: start_digest}
    expected = 1
    for row in rows:
        if row.version != expected:
            findings.append(Finding(expected, f"it is missing; the next one is {row.version}"))
        if row.chain != link(chain, row.record):
            findings.append(
                Finding(row.version, "the record is not the one that was written (its chain value differs)")
            )
        problem = _problem(row, digests, is_last=row is rows[-1])
        if problem is not None:
            findings.append(Finding(row.version, problem))
        chain, digests[row.version], expected = row.chain, row.digest, row.version + 1
    return findings


def require_sound(rows: Sequence[JournalRow], start_digest: bytes | None) -> None:
    """Raises StoreError with the first finding of `examine` and what to do."""
    findings = examine(rows, start_digest)
    if findings:
        raise StoreError(
            f"journal: {findings[0]}. Restore the store from a backup, or go on from an exported adaptation "
            "of an earlier version (seedbed import)"
        )


def _problem(row: JournalRow, digests: Mapping[int, bytes | None], *, is_last: bool) -> str | None:
    try:
        record = record_of(row)
    except StoreError as error:
        return str(error)
    before = digests.get(row.version - 1)
    if before is not None and record.from_digest and record.from_digest != before:
        return (
            f"from_digest: it was made for {record.from_digest.hex()}, and version {row.version - 1} "
            f"has {before.hex()}"
        )
    if row.digest is None:
        return None if is_last else "digest: it was never applied, and later versions were"
    if len(row.digest) != DIGEST_BYTES:
        return f"digest: it has {len(row.digest)} bytes; a digest has {DIGEST_BYTES}"
    if isinstance(record, RollbackRecord):
        if record.to_version >= row.version:
            return f"to_version: {record.to_version} is not older than {row.version}"
        older = digests.get(record.to_version)
        if older is not None and older != row.digest:
            return f"digest: {row.digest.hex()} is not that of version {record.to_version}, {older.hex()}"
    return None


def _published(rows: Sequence[JournalRow]) -> int:
    return sum(1 for row in rows if row.digest is not None)
