"""Journals made on the spot: updates and rollbacks whose digests are made up and fit together."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from seedbed.v1.engine_pb2 import ROUNDING_NEAREST, UpdateRecord
from seedbed.v1.journal_pb2 import RollbackRecord
from seedbed_server.store import journal
from seedbed_server.store.rows import JournalRow

START = hashlib.sha256(b"start").digest()


def step(version: int, before: bytes, **changes: object) -> UpdateRecord:
    fields: dict[str, object] = {
        "version": version, "noise_version": 1, "rank": 1, "seeds": [version, 2**64 - version],
        "coefficients": b"\x7f\x81", "matrix_multiplier": 2.0**-14, "vector_multiplier": 2.0**-12,
        "rounding": ROUNDING_NEAREST, "from_digest": before,
    }  # fmt: skip
    return UpdateRecord(**{**fields, **changes})  # type: ignore[arg-type]


def after(digest: bytes, record: bytes) -> bytes:
    """The digest that an update makes."""
    return hashlib.sha256(digest + record).digest()


def history(plan: Sequence[int | None], start: bytes = START) -> list[JournalRow]:
    """One row for each entry: None is an update, a number a rollback to that version."""
    rows: list[JournalRow] = []
    digests, chain = [start], journal.GENESIS
    for version, back in enumerate(plan, start=1):
        if back is None:
            data = step(version, digests[-1]).SerializeToString(deterministic=True)
            digests.append(after(digests[-1], data))
        else:
            data = RollbackRecord(
                version=version, to_version=back, from_digest=digests[-1], to_digest=digests[back], reason="r"
            ).SerializeToString(deterministic=True)
            digests.append(digests[back])
        chain = journal.link(chain, data)
        kind = journal.UPDATE if back is None else journal.ROLLBACK
        rows.append(
            JournalRow(
                version=version, population=0 if back is None else None, record=data, chain=chain,
                created_at=1.0, applied_at=2.0, digest=digests[-1], kind=kind,
            )
        )  # fmt: skip
    return rows


def rechained(rows: Sequence[JournalRow]) -> list[JournalRow]:
    """The same rows with chain values that fit their records."""
    chain, out = journal.GENESIS, []
    for row in rows:
        chain = journal.link(chain, row.record)
        out.append(replace(row, chain=chain))
    return out
