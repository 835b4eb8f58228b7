"""`seedbed journal verify`: what a store's journal is worth, as plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seedbed.v1.journal_pb2 import RollbackRecord
from seedbed_server.store import journal, runs
from seedbed_server.store.database import Store
from seedbed_server.store.errors import StoreError
from seedbed_server.store.lineage import examine, record_of

if TYPE_CHECKING:
    import sqlalchemy as sa

    from seedbed_server.store.place import Place
    from seedbed_server.store.rows import JournalRow

__all__ = ["verify"]


def verify(place: Place) -> dict[str, Any]:
    """Everything that can be checked without weights. Raises StoreError for a store that cannot be opened."""

    def job(connection: sa.Connection) -> tuple[bytes | None, list[JournalRow]]:
        run = runs.find(connection)
        return None if run is None else run.start_digest, journal.whole(connection)

    with Store(place) as store:
        start_digest, rows = store.read_now(job)
    findings = examine(rows, start_digest)
    report: dict[str, Any] = {
        "store": place.name,
        "sound": not findings,
        "versions": [_row(row, [f.problem for f in findings if f.version == row.version]) for row in rows],
        "findings": [{"version": f.version, "problem": f.problem} for f in findings],
        "remedy": None,
    }
    if findings:
        sound = findings[0].version - 1
        report["remedy"] = (
            f"Versions up to {sound} can be trusted. Restore the store from a backup, or import an "
            "adaptation that was exported earlier (seedbed import); do not serve this store"
        )
    return report


def _row(row: JournalRow, problems: list[str]) -> dict[str, Any]:
    try:
        record = record_of(row)
    except StoreError:
        record = None
    return {
        "version": row.version,
        "kind": row.kind,
        "to_version": record.to_version if isinstance(record, RollbackRecord) else None,
        "record_bytes": len(row.record),
        "digest": None if row.digest is None else row.digest.hex(),
        "problems": problems,
    }
