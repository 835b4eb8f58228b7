"""The adaptation file: the way from a base to a version, small enough to mail, and nothing in it is believed
before it was checked.

    magic (16 bytes) | length of the message (8, little-endian) | SHA-256 of the message | the message

The message is a serialised seedbed.v1.Adaptation.
"""

from __future__ import annotations

import hashlib
import math
import os
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from seedbed.v1 import engine_pb2 as pb
from seedbed.v1.journal_pb2 import Adaptation, RollbackRecord
from seedbed_server.files import put_in_place
from seedbed_server.store import journal
from seedbed_server.store.lineage import digest_of, lineage, update_of
from seedbed_server.store.rows import JournalRow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from seedbed_server.store.rows import RunRow

__all__ = ["AdaptationError", "adaptation_of", "decode", "encode", "read", "rows_of", "write"]

MAGIC = b"seedbed adapt 1\n"
HEAD_BYTES = len(MAGIC) + 8 + 32
MAX_BYTES = 256 * 2**20
MAX_VERSION = 1_000_000
MAX_MEMBERS = 1 << 16
MAX_TEXT = 10_000
DIGEST_BYTES = 32
DTYPES = ("float32", "bfloat16")
IMPORTED = "not in the lineage of the imported adaptation"
"""Reason of the records that stand for versions which the lineage leaves out."""


class AdaptationError(ValueError):
    """A file that is no whole adaptation; the message names the field and the remedy."""


def adaptation_of(run: RunRow, rows: Sequence[JournalRow], version: int) -> Adaptation:
    """The adaptation of a version. `rows`: the whole journal, found sound. Raises StoreError."""
    digest = digest_of(rows, version, run.start_digest)
    records = [update_of(row) for row in lineage(rows, version)]
    roundings = {record.rounding for record in records}
    return Adaptation(
        model=run.model,
        base_digest=run.base_digest,
        dtype=run.dtype,
        scope=run.scope,
        noise_version=run.noise_version,
        rank=run.rank,
        rounding=roundings.pop() if len(roundings) == 1 else pb.ROUNDING_UNSPECIFIED,
        start_digest=run.start_digest,
        version=version,
        digest=digest,
        records=records,
    )


def encode(adaptation: Adaptation) -> bytes:
    """The bytes of the file. Raises AdaptationError for one that is too long."""
    message = adaptation.SerializeToString(deterministic=True)
    if len(message) > MAX_BYTES:
        raise AdaptationError(
            f"length: {len(message):,} bytes; at most {MAX_BYTES:,} are read back. Export a folder instead"
        )
    return MAGIC + len(message).to_bytes(8, "little") + hashlib.sha256(message).digest() + message


def decode(data: bytes) -> Adaptation:
    """The adaptation in the bytes of a file, whole and consistent. Raises AdaptationError."""
    if data[: len(MAGIC)] != MAGIC:
        raise AdaptationError("magic: this is no adaptation file; export one with seedbed export")
    length = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 8], "little")
    if len(data) != HEAD_BYTES + length:
        raise AdaptationError(
            f"length: the file has {len(data):,} bytes and says {HEAD_BYTES + length:,}; copy it again"
        )
    message = data[HEAD_BYTES:]
    if hashlib.sha256(message).digest() != data[len(MAGIC) + 8 : HEAD_BYTES]:
        raise AdaptationError("checksum: the file is not what was written; copy it again")
    try:
        adaptation = Adaptation.FromString(message)
    except DecodeError as error:
        raise AdaptationError(f"message: it cannot be read ({error}); export it again") from None
    _check(adaptation)
    return adaptation


def read(path: Path) -> Adaptation:
    """The adaptation of a file; reads at most what one may have. Raises AdaptationError."""
    try:
        size = path.stat().st_size
        if size > HEAD_BYTES + MAX_BYTES:
            raise AdaptationError(
                f"length: {path} has {size:,} bytes; an adaptation has at most {HEAD_BYTES + MAX_BYTES:,}"
            )
        with path.open("rb") as file:
            return decode(file.read(HEAD_BYTES + MAX_BYTES + 1))
    except OSError as error:
        raise AdaptationError(f"{path} cannot be read ({error.strerror}); name an adaptation file") from None


def write(adaptation: Adaptation, path: Path) -> int:
    """Writes a file, all of it or nothing. Returns its bytes. Raises AdaptationError, OSError."""
    data = encode(adaptation)
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        put_in_place(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return len(data)


def rows_of(adaptation: Adaptation, now: float) -> list[JournalRow]:
    """A journal that makes the version of an adaptation, under its numbers.

    Versions are consecutive: where the lineage leaves some out, because rollbacks took them back, there is a
    rollback to the one before them for each.
    """
    records = {record.version: record for record in adaptation.records}
    # What an update makes is what the next one was made for.
    made = dict(
        zip(records, [*(r.from_digest for r in adaptation.records), adaptation.digest][1:], strict=False)
    )
    rows: list[JournalRow] = []
    chain, last, digest = journal.GENESIS, 0, adaptation.start_digest
    for version in range(1, adaptation.version + 1):
        record = records.get(version)
        if record is not None:
            data = record.SerializeToString(deterministic=True)
            last, digest, kind = version, made[version], journal.UPDATE
        else:
            data = RollbackRecord(
                version=version, to_version=last, from_digest=digest, to_digest=digest, reason=IMPORTED
            ).SerializeToString(deterministic=True)
            kind = journal.ROLLBACK
        chain = journal.link(chain, data)
        rows.append(
            JournalRow(
                version=version,
                population=None,
                record=data,
                chain=chain,
                created_at=now,
                sigma=record.sigma if record is not None else None,
                alpha=record.alpha if record is not None else None,
                applied_at=now,
                digest=digest,
                kind=kind,
            )
        )
    return rows


def _check(adaptation: Adaptation) -> None:
    """Raises AdaptationError for the first field that makes no sense."""
    a = adaptation
    for name in ("base_digest", "start_digest", "digest"):
        if len(getattr(a, name)) != DIGEST_BYTES:
            raise AdaptationError(
                f"{name}: {len(getattr(a, name))} bytes; a digest has {DIGEST_BYTES}. Export it again"
            )
    if a.dtype not in DTYPES:
        raise AdaptationError(f"dtype: {a.dtype!r} is none of {', '.join(DTYPES)}; export it again")
    if not 0 < len(a.scope) <= MAX_TEXT or len(a.model) > MAX_TEXT:
        raise AdaptationError(f"scope, model: empty, or longer than {MAX_TEXT} characters; export it again")
    if a.version > MAX_VERSION:
        raise AdaptationError(
            f"version: {a.version} is beyond {MAX_VERSION}; fold it into a folder with seedbed export and "
            "serve that as a new base"
        )
    version, digest = 0, a.start_digest
    for record in a.records:
        _check_record(a, record, version)
        # The digests are links of a chain, which an engine checks as it replays them.
        if version == 0 and record.from_digest != digest:
            raise AdaptationError("records: the first one was not made for the start; export it again")
        version = record.version
    if not a.records and a.digest != a.start_digest:
        raise AdaptationError("digest: there are no records and it is not that of the start; export it again")


def _check_record(a: Adaptation, record: pb.UpdateRecord, before: int) -> None:
    where = f"records: version {record.version}"
    if not before < record.version <= a.version:
        raise AdaptationError(f"{where} stands after {before}, of {a.version}; export it again")
    if (record.noise_version, record.rank) != (a.noise_version, a.rank):
        raise AdaptationError(f"{where} is of another noise version or rank; export it again")
    if not 0 < len(record.seeds) <= MAX_MEMBERS or len(record.coefficients) != len(record.seeds):
        raise AdaptationError(
            f"{where} has {len(record.seeds)} seeds and {len(record.coefficients)} coefficients; export "
            "it again"
        )
    if not (math.isfinite(record.matrix_multiplier) and math.isfinite(record.vector_multiplier)):
        raise AdaptationError(f"{where} has a multiplier that is not finite; export it again")
    if not 0 <= record.decay < 1:
        raise AdaptationError(f"{where} has a decay of {record.decay:g}, not 0 to below 1; export it again")
    if len(record.from_digest) != DIGEST_BYTES:
        raise AdaptationError(f"{where} does not say for which weights it was made; export it again")
