"""The store: what is confirmed is there, whatever happens next."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from seedbed_server.store import (
    Place,
    Store,
    StoreError,
    StoreLocked,
    StoreMismatch,
    episodes,
    journal,
    place_of,
    populations,
    rewards,
    runs,
    tables,
)
from seedbed_server.store.database import MIGRATIONS
from seedbed_server.store.rows import (
    Applied,
    CompletionEnd,
    CompletionRow,
    EpisodeRow,
    JournalRow,
    MemberRow,
    PopulationRow,
    RewardRow,
    RunRow,
)
from tests.postgres import Cluster

RUN = RunRow(1.0, "toy", b"\x01" * 32, b"\x05" * 32, "float32", "full", 1, 1, {"sigma": 0.1}, 0)
REWARD = RewardRow(None, "ep", None, 0.5, "good", "accepted", True, 3.0, population=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture(params=["sqlite", "postgres"])
def store(path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store of each kind."""
    with Store(_place(path, request)) as opened:
        yield opened


def _place(path: Path, request: pytest.FixtureRequest) -> Place:
    if request.param == "sqlite":
        return place_of(path)
    cluster: Cluster = request.getfixturevalue("postgres_cluster")
    return place_of(cluster.database(), path.parent)


@pytest.fixture
def file(path: Path) -> Iterator[Store]:
    """An empty SQLite store."""
    with Store(path) as opened:
        yield opened


def fill(connection: sa.Connection) -> None:
    """Population 0 with two members and the episode `ep` of member 1, with the completion `c`."""
    populations.insert(
        connection,
        PopulationRow(0, 0, 0.1, 1, 1.0),
        [MemberRow(0, 0, 2**64 - 1, 1), MemberRow(0, 1, 5, -1)],
    )
    episodes.insert(connection, EpisodeRow("ep", 0, 1, 5, -0.1, "g", "open", 2.0))
    episodes.insert_completion(
        connection, CompletionRow("c", "ep", "/v1/chat/completions", 1, "running", 2.0)
    )


def record(
    version: int, before: bytes = journal.GENESIS, *, digest: bytes | None = b"\x02" * 32
) -> JournalRow:
    data = f"record {version}".encode()
    row = JournalRow(
        version, 0, data, journal.link(before, data), 4.0, 0.5, 0.1, 0.0, 1.0, 1, 2, 2, 0.1, 0.01, 0.008
    )
    return row if digest is None else JournalRow(**{**_values(row), "applied_at": 5.0, "digest": digest})


def _values(row: JournalRow) -> dict[str, object]:
    return {name: getattr(row, name) for name in JournalRow.__slots__}


def test_the_tables_that_the_migrations_make_are_the_tables_that_the_code_uses(store: Store) -> None:
    def differences(connection: sa.Connection) -> list[object]:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, tables.metadata))

    assert store.read_now(differences) == []


def test_rewards_of_an_older_store_count_where_their_episodes_did(path: Path) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0003")
        for statement in (
            "INSERT INTO populations (number, version, sigma, episodes_per_member, opened_at) "
            "VALUES (3, 2, 0.1, 1, 1.0)",
            "INSERT INTO episodes (id, population, member, status, created_at) "
            "VALUES ('a', 3, 0, 'open', 1.0), ('live', NULL, NULL, 'open', 1.0)",
            "INSERT INTO rewards (episode_id, reward, result, counts, created_at) "
            "VALUES ('a', 1.0, 'replaced', 1, 1.0), ('a', 2.0, 'late', 0, 1.0), "
            "('live', 3.0, 'accepted', 1, 1.0)",
        ):
            connection.exec_driver_sql(statement)
    engine.dispose()
    with Store(path) as store:
        assert [row.reward for row in store.read_now(lambda c: rewards.of_population(c, 3))] == [1.0]
        (control,) = store.read_now(lambda c: rewards.of_episode(c, "live"))
        assert (control.population, control.final) == (None, None)


def test_sqlite_writes_ahead_and_waits_for_the_disk(file: Store) -> None:
    def pragmas(connection: sa.Connection) -> tuple[object, object]:
        return tuple(
            connection.exec_driver_sql(f"PRAGMA {p}").scalar() for p in ("journal_mode", "synchronous")
        )

    assert file.submit(pragmas).result(10) == ("wal", 2)


def test_rows_come_back_as_they_went_in_seeds_of_64_bits_as_well(store: Store) -> None:
    store.submit(fill).result(10)
    store.submit(lambda c: rewards.insert(c, REWARD)).result(10)
    assert store.read_now(lambda c: populations.members_of(c, 0))[0].seed == 2**64 - 1
    assert store.read_now(lambda c: episodes.find(c, "ep")) == EpisodeRow(
        "ep", 0, 1, 5, -0.1, "g", "open", 2.0
    )
    assert store.read_now(lambda c: rewards.of_episode(c, "ep")) == [REWARD]
    assert store.read_now(lambda c: rewards.of_population(c, 0)) == [REWARD]
    assert store.read_now(lambda c: episodes.find_owners(c, ["c", "d"])) == {"c": ("ep", 1)}


def test_the_end_of_a_completion_keeps_tokens_reason_and_versions(store: Store) -> None:
    store.submit(fill).result(10)
    end = CompletionEnd("finished", 3.0, 4, 5, 10, 20, 8, "stop,length")
    store.submit(lambda c: episodes.end_completion(c, ("c", end))).result(10)
    row = store.read_now(lambda c: c.execute(sa.select(tables.completions)).one())
    assert (row.version, row.last_version, row.completion_tokens, row.finish_reasons) == (
        4,
        5,
        20,
        "stop,length",
    )


def test_completions_of_a_dead_gateway_are_marked_lost(store: Store) -> None:
    store.submit(fill).result(10)
    assert store.submit(lambda c: episodes.lose_running(c, 9.0)).result(10) == 1
    assert store.submit(lambda c: episodes.lose_running(c, 9.0)).result(10) == 0


def test_a_superseded_reward_stays_on_record_and_no_longer_counts(store: Store) -> None:
    store.submit(fill).result(10)
    store.submit(lambda c: rewards.insert(c, REWARD)).result(10)
    store.submit(lambda c: rewards.supersede(c, "ep", None)).result(10)
    assert store.read_now(lambda c: rewards.of_episode(c, "ep")) == []
    assert (
        store.read_now(lambda c: c.execute(sa.select(sa.func.count()).select_from(tables.rewards)).scalar())
        == 1
    )


def test_dropped_episodes_do_not_count_for_their_member(store: Store) -> None:
    store.submit(fill).result(10)
    store.submit(lambda c: episodes.drop(c, "ep")).result(10)
    assert store.read_now(lambda c: episodes.of_population(c, 0)) == []


def test_a_job_that_fails_takes_only_its_own_writes_back(store: Store) -> None:
    store.submit(fill).result(10)
    hold = threading.Event()
    store.submit(lambda _: hold.wait(10))  # so that the next three share a commit

    def half(connection: sa.Connection) -> None:
        rewards.insert(connection, REWARD)
        raise KeyError("half-way")

    one = store.submit(
        lambda c: rewards.insert(c, RewardRow("a", "ep", None, 1.0, None, "accepted", False, 1.0))
    )
    two = store.submit(half)
    three = store.submit(
        lambda c: rewards.insert(c, RewardRow("b", "ep", None, 2.0, None, "accepted", False, 1.0))
    )
    hold.set()
    one.result(10)
    three.result(10)
    with pytest.raises(KeyError):
        two.result(10)
    assert store.read_now(lambda c: c.execute(sa.select(tables.rewards.c.reward_id)).scalars().all()) == [
        "a",
        "b",
    ]


def test_jobs_run_in_order_and_see_what_came_before(store: Store) -> None:
    store.submit(fill).result(10)

    def next_value(connection: sa.Connection) -> int:
        count = connection.execute(sa.select(sa.func.count()).select_from(tables.rewards)).scalar_one()
        rewards.insert(connection, RewardRow(f"r{count}", "ep", None, float(count), None, "late", False, 1.0))
        return int(count)

    futures = [store.submit(next_value) for _ in range(500)]
    assert [future.result(30) for future in futures] == list(range(500))


def test_what_is_confirmed_survives_a_kill(path: Path) -> None:
    program = textwrap.dedent("""
        import sys
        from tests.unit.test_store import fill
        from seedbed_server.store import Store, rewards
        from seedbed_server.store.rows import RewardRow
        store = Store(sys.argv[1])
        store.submit(fill).result(10)
        number = 0
        while True:
            rows = [RewardRow(f"r{number + i}", "ep", None, 1.0, None, "late", False, 1.0) for i in range(20)]
            futures = [store.submit(lambda c, row=row: rewards.insert(c, row)) for row in rows]
            for row, future in zip(rows, futures):
                future.result(10)
                print(row.reward_id, flush=True)
            number += 20
    """)
    process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    confirmed = [process.stdout.readline().strip() for _ in range(150)]
    process.send_signal(signal.SIGKILL)
    confirmed += process.stdout.read().split()[:-1]
    process.wait(10)
    with Store(path) as store:
        kept = store.read_now(lambda c: c.execute(sa.select(tables.rewards.c.reward_id)).scalars().all())
    assert len(confirmed) >= 149
    assert set(confirmed) <= set(kept)
    assert len(kept) == len(set(kept))


def test_a_second_process_is_refused_and_told_who_has_the_store(file: Store, path: Path) -> None:
    program = f"from seedbed_server.store import Store; Store({str(path)!r})"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert f"in use by process {os.getpid()}" in result.stderr
    assert "--store" in result.stderr
    with pytest.raises(StoreLocked):
        Store(path)


def test_a_closed_store_can_be_opened_again_and_takes_no_more_writes(path: Path) -> None:
    first = Store(path)
    first.submit(fill).result(10)
    first.close()
    with pytest.raises(StoreError, match="closed"):
        first.submit(fill)
    with Store(path) as again:
        assert again.read_now(lambda c: episodes.find(c, "ep")) is not None


def test_a_file_that_is_no_database_is_refused_with_a_remedy(path: Path) -> None:
    path.write_bytes(b"this is not a database, it is a letter" * 100)
    with pytest.raises(StoreError, match=r"cannot be used .*move the file away"):
        Store(path)
    assert path.read_bytes().startswith(b"this is not")
    path.unlink()
    Store(path).close()  # the lock was let go


def test_a_full_disk_fails_the_write_and_keeps_nothing_of_it(file: Store) -> None:
    file.submit(fill).result(10)
    pages = file.submit(lambda c: c.exec_driver_sql("PRAGMA page_count").scalar()).result(10)
    file.submit(lambda c: c.exec_driver_sql(f"PRAGMA max_page_count={pages}").scalar()).result(10)
    row = RewardRow("big", "ep", None, 1.0, "x" * 100_000, "accepted", True, 1.0)
    with pytest.raises(StoreError, match=r"full.*nothing of this was kept"):
        file.submit(lambda c: rewards.insert(c, row)).result(10)
    file.submit(lambda c: c.exec_driver_sql("PRAGMA max_page_count=1000000").scalar()).result(10)
    assert file.read_now(lambda c: rewards.by_id(c, "big")) is None
    file.submit(lambda c: rewards.insert(c, row)).result(10)
    assert file.read_now(lambda c: rewards.by_id(c, "big")) == row


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"base_digest": b"\x03" * 32}, ("01" * 32, "03" * 32)),
        ({"dtype": "bfloat16"}, ("float32", "bfloat16")),
        ({"scope": "all-linear"}, ("full", "all-linear")),
        ({"noise_version": 2}, ("1", "2")),
    ],
)
def test_a_store_of_another_base_is_refused_with_both_values(
    change: dict[str, object], shown: tuple[str, str]
) -> None:
    loaded = RunRow(**{**{name: getattr(RUN, name) for name in RunRow.__slots__}, **change})
    with pytest.raises(StoreMismatch) as error:
        runs.check_identity(RUN, loaded, "s.sqlite")
    assert next(iter(change)) in str(error.value)
    assert all(value in str(error.value) for value in shown)


def test_the_term_rises_with_every_gateway(store: Store) -> None:
    store.submit(lambda c: runs.insert(c, RUN)).result(10)
    terms = [store.submit(lambda c: runs.take_over(c, {"n": 1})).result(10) for _ in range(3)]
    assert terms == [1, 2, 3]
    run = store.read_now(runs.find)
    assert run is not None
    assert run.settings == {"n": 1}


def test_the_journal_is_a_chain_and_a_changed_or_missing_record_is_noticed(store: Store) -> None:
    store.submit(fill).result(10)
    first = record(1)
    second = record(2, first.chain, digest=None)
    for row in (first, second):
        store.submit(lambda c, row=row: journal.append(c, row)).result(10)
    store.submit(
        lambda c: journal.mark_applied(c, 2, Applied(6.0, b"\x04" * 32, 0.5, 0.3, 0.1, None, 2))
    ).result(10)
    rows = store.read_now(journal.verified)
    assert [row.version for row in rows] == [1, 2]
    assert (rows[1].digest, rows[1].seconds, rows[1].cosine) == (b"\x04" * 32, 0.5, None)
    assert store.read_now(lambda c: journal.after(c, 1, 10)) == [rows[1]]
    assert store.read_now(journal.last) == rows[1]
    changed = sa.update(tables.journal).where(tables.journal.c.version == 1).values(record=b"\x00")
    store.submit(lambda c: c.execute(changed)).result(10)
    with pytest.raises(StoreError, match="version 1 is not the one that was written"):
        store.read_now(journal.verified)
    missing = sa.delete(tables.journal).where(tables.journal.c.version == 1)
    store.submit(lambda c: c.execute(missing)).result(10)
    with pytest.raises(StoreError, match="version 1 is missing"):
        store.read_now(journal.verified)


async def test_a_cancelled_caller_does_not_take_its_write_back(store: Store) -> None:
    import asyncio

    await store.write(fill)
    blocked = threading.Event()
    store.submit(lambda _: blocked.wait(10))
    waiting = asyncio.create_task(store.write(lambda c: rewards.insert(c, REWARD)))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    blocked.set()
    await store.write(lambda _: None)
    assert await store.read(lambda c: rewards.of_episode(c, "ep")) == [REWARD]


async def test_a_write_that_is_not_confirmed_in_time_says_so(store: Store) -> None:
    blocked = threading.Event()
    store.submit(lambda _: blocked.wait(10))
    begin = time.monotonic()
    with pytest.raises(StoreError, match="may or may not be kept"):
        await store.write(lambda _: None, timeout=0.2)
    assert time.monotonic() - begin < 2
    blocked.set()
