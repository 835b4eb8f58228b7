"""The adaptation file: what goes in comes out, and damaged or forged ones are refused by a clear error."""

import hashlib
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seedbed.v1 import engine_pb2 as pb
from seedbed.v1.journal_pb2 import Adaptation
from seedbed_server.gateway import adaptation as adaptations
from seedbed_server.gateway.adaptation import (
    HEAD_BYTES,
    MAGIC,
    MAX_VERSION,
    AdaptationError,
    adaptation_of,
    decode,
    encode,
    read,
    rows_of,
    write,
)
from seedbed_server.store import StoreError
from seedbed_server.store.lineage import digest_of, examine, lineage
from seedbed_server.store.rows import RunRow
from tests.unit.journals import START, history

PLAN = [None, None, None, 1, None, None, 5, None]
RUN = RunRow(1.0, "toy", b"\x01" * 32, START, "float32", "full,!*norm*", 1, 1, {}, 0)


def made(version: int = 8, plan: list[int | None] | None = None) -> Adaptation:
    return adaptation_of(RUN, history(PLAN if plan is None else plan), version)


@pytest.mark.parametrize("version", range(len(PLAN) + 1))
def test_an_adaptation_rebuilds_the_journal_of_its_lineage_under_the_same_numbers(version: int) -> None:
    rows = history(PLAN)
    adaptation = decode(encode(adaptation_of(RUN, rows, version)))
    assert adaptation.digest == digest_of(rows, version, START)
    assert (adaptation.base_digest, adaptation.scope) == (RUN.base_digest, RUN.scope)
    again = rows_of(adaptation, 9.0)
    assert examine(again, START) == []
    assert [row.version for row in again] == list(range(1, version + 1))
    same = lineage(rows, version)
    assert [row.record for row in lineage(again, version)] == [row.record for row in same]
    assert digest_of(again, version, START) == adaptation.digest
    assert encode(adaptation_of(RUN, again, version)) == encode(adaptation)


def test_a_version_that_is_not_published_is_refused() -> None:
    rows = history(PLAN)
    rows[-1] = replace(rows[-1], digest=None)
    for version in (8, 9):
        with pytest.raises(StoreError, match="newest one is 7"):
            adaptation_of(RUN, rows, version)


def test_it_is_small() -> None:
    assert len(encode(made(40, [None] * 40))) < 40 * 120 + 300


WHOLE = encode(made())


@settings(max_examples=400)
@given(at=st.integers(0, len(WHOLE) - 1), bit=st.integers(0, 7))
def test_every_flipped_bit_is_noticed(at: int, bit: int) -> None:
    with pytest.raises(AdaptationError):
        decode(WHOLE[:at] + bytes([WHOLE[at] ^ (1 << bit)]) + WHOLE[at + 1 :])


@given(st.integers(0, len(WHOLE) - 1), st.binary(max_size=40))
@example(len(WHOLE) - 1, b"")
def test_a_file_that_was_cut_off_or_goes_on_is_noticed(length: int, tail: bytes) -> None:
    with pytest.raises(AdaptationError):
        decode(WHOLE[:length] + (tail if WHOLE[:length] + tail != WHOLE else b""))
    if tail:
        with pytest.raises(AdaptationError, match="length"):
            decode(WHOLE + tail)


def _with_checksum(message: bytes) -> bytes:
    return MAGIC + len(message).to_bytes(8, "little") + hashlib.sha256(message).digest() + message


@settings(max_examples=400)
@given(st.data())
def test_a_forged_message_with_a_right_checksum_is_refused_or_consistent(data: st.DataObject) -> None:
    message = bytearray(WHOLE[HEAD_BYTES:])
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(message) - 1))
        message[at] = data.draw(st.integers(0, 255))
    try:
        adaptation = decode(_with_checksum(bytes(message)))
    except AdaptationError:
        return
    rows = rows_of(adaptation, 1.0) if adaptation.version < 1000 else []
    assert [row.version for row in rows] == list(range(1, len(rows) + 1))


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    for text in (data, MAGIC + data, _with_checksum(data)):
        with pytest.raises(AdaptationError):
            decode(text)


def _changed(**fields: object) -> Adaptation:
    adaptation = made()
    for name, value in fields.items():
        setattr(adaptation, name, value)
    return adaptation


def _changed_record(index: int, **fields: object) -> Adaptation:
    adaptation = made()
    record = adaptation.records[index]
    for name, value in fields.items():
        if name == "seeds":
            del record.seeds[:]
            record.seeds.extend(value)  # type: ignore[arg-type]
        else:
            setattr(record, name, value)
    return adaptation


@pytest.mark.parametrize(
    ("forged", "field"),
    [
        (_changed(base_digest=b"short"), "base_digest"),
        (_changed(digest=b""), "digest"),
        (_changed(dtype="float8"), "dtype"),
        (_changed(scope=""), "scope"),
        (_changed(scope="x" * 20_000), "scope"),
        (_changed(version=2**62), "version"),
        (_changed(version=MAX_VERSION + 1), "version"),
        (_changed(version=3), "records"),
        (_changed(start_digest=b"z" * 32), "records"),
        (_changed_record(0, version=0), "records"),
        (_changed_record(1, version=1), "records"),
        (_changed_record(1, version=2**63), "records"),
        (_changed_record(1, noise_version=2), "records"),
        (_changed_record(1, rank=4), "records"),
        (_changed_record(1, seeds=[]), "records"),
        (_changed_record(1, seeds=[1] * 70_000, coefficients=b"a" * 70_000), "records"),
        (_changed_record(1, coefficients=b""), "records"),
        (_changed_record(1, matrix_multiplier=math.nan), "records"),
        (_changed_record(1, vector_multiplier=math.inf), "records"),
        (_changed_record(1, from_digest=b""), "records"),
        (Adaptation(**{**{n: getattr(made(), n) for n in ("base_digest", "start_digest", "dtype", "scope")},
                       "digest": b"q" * 32}), "digest"),
    ],
)  # fmt: skip
def test_a_value_that_makes_no_sense_is_refused_by_its_field(forged: Adaptation, field: str) -> None:
    with pytest.raises(AdaptationError, match=field):
        decode(encode(forged))


def test_a_huge_length_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.adaptation"
    with path.open("wb") as file:
        file.write(MAGIC + (2**63).to_bytes(8, "little"))
        file.truncate(2**40)
    with pytest.raises(AdaptationError, match="at most"):
        read(path)
    with pytest.raises(AdaptationError, match="cannot be read"):
        read(tmp_path)


def test_a_file_is_written_whole_and_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "toy.adaptation"
    size = write(made(), path)
    assert path.stat().st_size == size
    assert read(path) == made()
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        write(made(1), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["toy.adaptation"]


def test_the_rounding_is_named_only_where_all_updates_share_it() -> None:
    rows = history([None, None])
    assert adaptation_of(RUN, rows, 2).rounding == pb.ROUNDING_NEAREST
    record = pb.UpdateRecord.FromString(rows[1].record)
    record.rounding = pb.ROUNDING_STOCHASTIC
    rows[1] = replace(rows[1], record=record.SerializeToString())
    assert adaptation_of(RUN, rows, 2).rounding == pb.ROUNDING_UNSPECIFIED


def test_the_longest_file_that_is_written_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptations, "MAX_BYTES", 100)
    with pytest.raises(AdaptationError, match="at most 100"):
        encode(made())
