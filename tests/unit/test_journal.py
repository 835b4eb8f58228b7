"""The journal as a whole: lineages, and damage at each place."""

from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from hypothesis import given
from hypothesis import strategies as st

from seedbed.v1.engine_pb2 import UpdateRecord
from seedbed.v1.journal_pb2 import RollbackRecord
from seedbed_server.store import Store, StoreError, journal
from seedbed_server.store.database import MIGRATIONS
from seedbed_server.store.lineage import (
    digest_of,
    examine,
    lineage,
    lineage_versions,
    record_of,
    require_sound,
    update_of,
    updates_in_lineage,
)
from seedbed_server.store.rows import JournalRow, columns
from tests.unit.journals import START, after, history, rechained

PLAN = [None, None, None, 1, None, None, 5, None]


def test_a_rollback_takes_the_updates_after_its_version_out_of_the_lineage() -> None:
    rows = history(PLAN)
    assert [row.version for row in lineage(rows, 3)] == [1, 2, 3]
    assert [row.version for row in lineage(rows, 4)] == [1]
    assert [row.version for row in lineage(rows, 6)] == [1, 5, 6]
    assert [row.version for row in lineage(rows, 7)] == [1, 5]
    assert [row.version for row in lineage(rows, 8)] == [1, 5, 8]
    assert lineage(rows, 0) == []
    assert rows[6].digest == rows[4].digest


@st.composite
def plans(draw: st.DrawFn) -> list[int | None]:
    versions = range(1, draw(st.integers(1, 40)) + 1)
    return [draw(st.one_of(st.none(), st.integers(0, version - 1))) for version in versions]


@given(plans())
def test_the_lineage_replayed_from_the_start_has_the_digest_of_the_version(plan: list[int | None]) -> None:
    rows = history(plan)
    assert examine(rows, START) == []
    for version in range(len(rows) + 1):
        digest = START
        for row in lineage(rows, version):
            record = update_of(row)
            assert record.from_digest == digest
            digest = after(digest, row.record)
        assert digest == digest_of(rows, version, START)


def test_a_long_history_of_rollbacks_is_walked_without_recursion() -> None:
    back = {version: version - 1 for version in range(2, 100_000)}
    assert lineage_versions(back, 99_999) == [1]
    with pytest.raises(StoreError, match="not older"):
        lineage_versions({5: 7}, 9)


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("version", range(1, len(PLAN) + 1))
@pytest.mark.parametrize("column", ["record", "chain"])
def test_a_flipped_bit_anywhere_in_a_record_or_chain_value_is_found_at_its_version(
    version: int, column: str
) -> None:
    rows = history(PLAN)
    data: bytes = getattr(rows[version - 1], column)
    for at in range(len(data)):
        damaged = list(rows)
        damaged[version - 1] = replace(rows[version - 1], **{column: _flip(data, at)})
        assert examine(damaged, START)[0].version == version


@pytest.mark.parametrize("version", range(1, len(PLAN)))
def test_a_missing_version_is_named(version: int) -> None:
    rows = history(PLAN)
    del rows[version - 1]
    assert str(examine(rows, START)[0]).startswith(f"version {version}: it is missing")


def test_two_records_that_changed_places_are_found() -> None:
    rows = history(PLAN)
    one, two = rows[1], rows[2]
    rows[1], rows[2] = replace(one, record=two.record), replace(two, record=one.record)
    assert examine(rechained(rows), START)[0].version == 2


def _record(row: JournalRow, **changes: object) -> JournalRow:
    record = record_of(row)
    for name, value in changes.items():
        setattr(record, name, value)
    return replace(row, record=record.SerializeToString(deterministic=True))


@pytest.mark.parametrize(
    ("version", "damage", "said"),
    [
        (1, lambda row: _record(row, from_digest=b"x" * 32), "from_digest"),
        (3, lambda row: _record(row, from_digest=b"x" * 32), "from_digest"),
        (4, lambda row: _record(row, from_digest=b"x" * 32), "from_digest"),
        (4, lambda row: _record(row, to_version=4), "to_version"),
        (7, lambda row: _record(row, to_version=3), "digest"),
        (4, lambda row: replace(row, kind="update"), "makes version 0"),
        (3, lambda row: replace(row, kind="rollback"), "makes version 0"),
        (3, lambda row: replace(row, kind="wish"), "kind"),
        (2, lambda row: replace(row, record=b"\xff"), "are no update"),
        (2, lambda row: replace(row, digest=None), "never applied"),
        (2, lambda row: replace(row, digest=b"short"), "5 bytes"),
    ],
)
def test_a_record_that_was_forged_with_its_chain_is_found(version: int, damage: object, said: str) -> None:
    rows = history(PLAN)
    rows[version - 1] = damage(rows[version - 1])  # type: ignore[operator]
    findings = examine(rechained(rows), START)
    assert findings[0].version == version
    assert said in findings[0].problem
    with pytest.raises(StoreError, match=f"version {version}"):
        require_sound(rechained(rows), START)


def test_another_start_digest_is_found_at_the_first_version() -> None:
    assert examine(history([None]), b"y" * 32)[0].version == 1


def test_the_last_record_may_be_unapplied() -> None:
    rows = history(PLAN)
    rows[-1] = replace(rows[-1], digest=None, applied_at=None)
    assert examine(rows, START) == []
    with pytest.raises(StoreError, match="newest one is 7"):
        digest_of(rows, 8, START)


def test_the_two_kinds_of_records_share_no_field_number() -> None:
    update, rollback = (
        {field.number for field in kind.DESCRIPTOR.fields} for kind in (UpdateRecord, RollbackRecord)
    )
    assert update.isdisjoint(rollback)


def test_a_journal_from_before_rollbacks_is_one_of_updates(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    engine = sa.create_engine(f"sqlite:///{path}")
    (row,) = history([None])
    values = {name: value for name, value in columns(row).items() if name != "kind"}
    figures = dict.fromkeys(("reward_mean", "reward_spread", "reward_min", "reward_max", "scale"), 0.5)
    values |= {**figures, "sigma": 0.5, "alpha": 0.5, "best_member": 1, "members": 2, "episodes": 2}
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        connection.exec_driver_sql(
            "INSERT INTO populations (number, version, sigma, episodes_per_member, opened_at) "
            "VALUES (0, 0, 0.5, 1, 1.0)"
        )
        names = ", ".join(values)
        connection.exec_driver_sql(
            f"INSERT INTO journal ({names}) VALUES ({', '.join('?' * len(values))})", tuple(values.values())
        )
    engine.dispose()
    with Store(path) as store:
        (kept,) = store.read_now(journal.verified)
        assert kept == replace(row, **{name: values[name] for name in values})
        assert kept.kind == journal.UPDATE
        rollback = history([None, 0])[1]
        store.submit(lambda c: journal.append(c, rollback)).result(10)
        assert store.read_now(journal.verified)[1] == rollback
        assert store.read_now(lambda c: updates_in_lineage(c, 1)) == 1
        assert store.read_now(lambda c: updates_in_lineage(c, 2)) == 0
