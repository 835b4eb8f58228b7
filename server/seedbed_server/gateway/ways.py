"""The shortest way to the weights of a version: a snapshot that was read back and found whole, or the base,
and the updates after it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from seedbed.v1 import engine_pb2 as pb
from seedbed.v1.journal_pb2 import RollbackRecord
from seedbed_server.store import snapshots
from seedbed_server.store.journal import ROLLBACK
from seedbed_server.store.lineage import digest_of, lineage, record_of, update_of
from seedbed_server.store.rows import SnapshotRow
from seedbed_server.store.snapshot_folders import (
    SnapshotDamaged,
    Weights,
    name_of,
    read_weights,
    root_of,
    set_aside,
    strays,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import sqlalchemy as sa

    from seedbed_server.store import Store
    from seedbed_server.store.rows import JournalRow

__all__ = ["Way", "base_way", "check_snapshot", "find_way", "folder_for", "tidy"]

log = structlog.get_logger(__name__)

WRITE_SECONDS = 30.0


@dataclass(frozen=True)
class Way:
    """How an engine gets the weights of a version."""

    version: int
    digest: bytes
    """That it must end with."""
    folder: str
    """A snapshot's, or empty for the base."""
    folder_version: int
    records: tuple[pb.UpdateRecord, ...]

    def request(self, term: int) -> pb.RestoreRequest:
        """The call that goes this way."""
        return pb.RestoreRequest(
            term=term,
            folder=self.folder,
            version=self.folder_version,
            records=self.records,
            digest=self.digest,
            as_version=self.version,
        )

    def unchecked(self) -> Way:
        """The same without the demand of a digest: for one who compares it himself."""
        return replace(self, digest=b"")


def base_way(rows: Sequence[JournalRow], version: int, start_digest: bytes) -> Way:
    """The way to a version from the base, whatever snapshots there are. Raises StoreError."""
    digest = _expected_digest(rows, version, start_digest)
    return Way(version, digest, "", 0, _records(lineage(rows, version)))


def find_way(store: Store, rows: Sequence[JournalRow], version: int, start_digest: bytes) -> Way:
    """The way to a version with the fewest updates. Reads the snapshot that it begins with, to the last byte.

    Snapshots that turn out damaged are set aside, and the next best one is taken, or the base. `rows`: the
    whole journal, found sound. Raises StoreError.
    """
    updates = lineage(rows, version)
    made_by = [row.version for row in updates]
    digest = _expected_digest(rows, version, start_digest)
    candidates = []
    for row in store.read_now(snapshots.good):
        if row.version > len(rows):
            continue
        before = [update.version for update in lineage(rows, row.version)]
        if before and before == made_by[: len(before)]:
            candidates.append((len(before), row.version, row))
    for length, _, row in sorted(candidates, key=lambda found: found[:2], reverse=True):
        if check_snapshot(store, row.folder, row.version, digest_of(rows, row.version, start_digest)):
            folder = root_of(store.path) / row.folder
            return Way(version, digest, str(folder), row.version, _records(updates[length:]))
    return base_way(rows, version, start_digest)


def check_snapshot(store: Store, folder: str, version: int, digest: bytes) -> Weights | None:
    """What a snapshot holds, or None if that is not the weights of its version: it is set aside then.

    Reads all of it.
    """
    path = root_of(store.path) / folder
    try:
        weights = read_weights(path)
        if (weights.version, weights.digest) != (version, digest):
            raise SnapshotDamaged(
                f"its weights have the digest {weights.digest.hex()} at version {weights.version}, and the "
                f"journal says {digest.hex()} at version {version}"
            )
    except SnapshotDamaged as error:
        _give_up(store, path, str(error))
        return None
    return weights


def tidy(store: Store, rows: Sequence[JournalRow], start_digest: bytes) -> None:
    """Looks at folders that are on no record: a whole snapshot is put on record, anything else set aside.

    Only while no engine writes one.
    """
    root = root_of(store.path)
    known = {row.folder for row in store.read_now(snapshots.good)}
    published = sum(1 for row in rows if row.digest is not None)
    for folder in strays(root, known):
        version = version_of(folder.name)
        try:
            if version is None:
                raise SnapshotDamaged("it was not finished")
            if not 0 < version <= published:
                raise SnapshotDamaged(f"version {version} is not in the journal")
            weights = read_weights(folder)
            if (weights.version, weights.digest) != (version, digest_of(rows, version, start_digest)):
                raise SnapshotDamaged("its weights are not those of its version")
        except SnapshotDamaged as error:
            _give_up(store, folder, str(error))
            continue
        row = SnapshotRow(version, folder.name, weights.digest, weights.bytes, time.time())
        store.submit(partial(snapshots.insert, row=row)).result(WRITE_SECONDS)
        log.info("snapshot found and put on record", folder=str(folder), version=version)


def folder_for(store: Store, version: int) -> Path:
    """Where the snapshot of a version is to be written; its parent is made. Raises OSError."""
    root = root_of(store.path)
    root.mkdir(mode=0o700, exist_ok=True)
    return root / name_of(version)


def _expected_digest(rows: Sequence[JournalRow], version: int, start_digest: bytes) -> bytes:
    """The digest that a version has, or will have where a rollback makes it. Raises StoreError."""
    if 0 < version <= len(rows) and rows[version - 1].kind == ROLLBACK:
        record = record_of(rows[version - 1])
        assert isinstance(record, RollbackRecord)
        return record.to_digest
    return digest_of(rows, version, start_digest)


def _give_up(store: Store, folder: Path, reason: str) -> None:
    name = folder.name
    try:
        set_aside(folder, reason)
    except FileNotFoundError:
        log.warning("snapshot gone", folder=str(folder))
    except OSError as error:
        # It stays where it is; its record says that nobody may trust it.
        log.error("snapshot not set aside", folder=str(folder), error=str(error))

    def job(connection: sa.Connection) -> None:
        snapshots.mark(connection, name, snapshots.ASIDE, reason)

    store.submit(job).result(WRITE_SECONDS)


def _records(rows: Sequence[JournalRow]) -> tuple[pb.UpdateRecord, ...]:
    return tuple(update_of(row) for row in rows)
