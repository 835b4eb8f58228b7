"""The store on PostgreSQL: who may write, and what is known of a commit whose answer was lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from seedbed_server.store import Place, Store, StoreError, StoreLocked, place_of, postgres, rewards, tables
from seedbed_server.store.rows import RewardRow
from tests.postgres import Cluster
from tests.unit.test_store import fill


@pytest.fixture
def place(postgres_cluster: Cluster, tmp_path: Path) -> Place:
    return place_of(postgres_cluster.database(), tmp_path / "beside")


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    with Store(place) as opened:
        opened.submit(fill).result(10)
        yield opened


def reward(name: str, text: str | None = None) -> RewardRow:
    return RewardRow(name, "ep", None, 1.0, text, "accepted", False, 1.0)


def names(store: Store) -> list[str | None]:
    query = sa.select(tables.rewards.c.reward_id).order_by(tables.rewards.c.id)
    return list(store.read_now(lambda c: c.execute(query).scalars().all()))


def end_sessions(place: Place, *, but: int | None = None) -> None:
    """What a restart of the database does to its clients."""
    raw = place.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(raw, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'seedbed%%' "
            "AND datname = current_database() AND pid <> %s",
            (but or 0,),
        )


def test_a_second_server_on_the_same_database_is_refused_and_told_who_has_it(
    store: Store, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LOCK_SECONDS", 0.5)
    elsewhere = Place(place.url, tmp_path / "another machine" / "store")
    with pytest.raises(StoreLocked, match=r"in use by seedbed .*another database"):
        Store(elsewhere)
    store.close()
    Store(elsewhere).close()


def test_a_server_that_was_cut_off_does_not_write_beside_the_one_that_took_over(
    store: Store, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LOCK_SECONDS", 0.5)
    end_sessions(place)
    with Store(Place(place.url, tmp_path / "another machine" / "store")) as other:
        with pytest.raises(StoreError):
            store.submit(lambda c: rewards.insert(c, reward("a"))).result(20)
        with pytest.raises(StoreLocked):
            store.submit(lambda c: rewards.insert(c, reward("b"))).result(20)
        other.submit(lambda c: rewards.insert(c, reward("c"))).result(20)
    assert names(store) == ["c"]
    store.submit(lambda c: rewards.insert(c, reward("d"))).result(20)
    assert names(store) == ["c", "d"]


def test_a_session_that_is_lost_before_the_commit_keeps_nothing_and_the_next_write_goes_on(
    store: Store, place: Place
) -> None:
    def job(connection: sa.Connection) -> None:
        rewards.insert(connection, reward("a"))
        end_sessions(place)
        connection.execute(sa.select(1))

    with pytest.raises(StoreError, match="nothing of this was kept"):
        store.submit(job).result(20)
    store.submit(lambda c: rewards.insert(c, reward("b"))).result(20)
    assert names(store) == ["b"]


class _LostAnswer(Exception):
    """Stands for a connection that breaks while the answer to a commit is on its way."""


@pytest.mark.parametrize("committed", [True, False])
def test_the_database_is_asked_for_a_commit_that_was_not_answered(
    store: Store, place: Place, committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's commit is replaced by one that does the work, or not, and then loses its session."""
    commit = psycopg.Connection.commit
    armed = threading.Event()

    def lose(connection: psycopg.Connection) -> None:
        if not armed.is_set():
            return commit(connection)
        armed.clear()
        if committed:
            commit(connection)
        end_sessions(place)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(psycopg.Connection, "commit", lose)

    def job(connection: sa.Connection) -> str:
        rewards.insert(connection, reward("a"))
        armed.set()
        return "done"

    future = store.submit(job)
    if committed:
        assert future.result(30) == "done"
    else:
        with pytest.raises(StoreError, match="nothing of this was kept"):
            future.result(30)
    assert names(store) == (["a"] if committed else [])
    store.submit(lambda c: rewards.insert(c, reward("b"))).result(20)


def test_a_value_that_the_database_cannot_hold_fails_alone(store: Store) -> None:
    hold = threading.Event()
    store.submit(lambda _: hold.wait(10))
    bad = store.submit(lambda c: rewards.insert(c, reward("a", "nul \x00 byte")))
    good = store.submit(lambda c: rewards.insert(c, reward("b", "fine")))
    hold.set()
    with pytest.raises(sa.exc.DBAPIError):
        bad.result(10)
    good.result(10)
    assert names(store) == ["b"]


def test_a_database_that_is_not_there_is_refused_with_a_remedy_and_without_the_password(
    tmp_path: Path,
) -> None:
    begin = time.monotonic()
    place = place_of("postgresql://somebody:secret-word@127.0.0.1:1/none", tmp_path)
    with pytest.raises(StoreError, match=r"cannot be used .*check that the database runs") as caught:
        Store(place)
    assert "secret-word" not in str(caught.value)
    assert "somebody" in place.name
    assert time.monotonic() - begin < 30


def test_a_database_that_was_killed_and_started_again_has_all_that_was_acknowledged(tmp_path: Path) -> None:
    """Writers that try again with the same reward_id, over three kills: nothing lost and nothing doubled."""
    from tests import postgres as servers

    with servers.cluster(servers.needed()) as cluster:
        place = place_of(cluster.database(), tmp_path)
        kept: list[str] = []
        with Store(place) as store:
            store.submit(fill).result(10)
            end = threading.Event()

            def once(name: str) -> None:
                def job(connection: sa.Connection) -> None:
                    if rewards.by_id(connection, name) is None:
                        rewards.insert(connection, reward(name))

                while True:
                    try:
                        store.submit(job).result(60)
                    except StoreError:
                        time.sleep(0.05)
                        continue
                    kept.append(name)
                    return

            def writer(number: int) -> None:
                turn = 0
                while not end.is_set():
                    once(f"{number}-{turn}")
                    turn += 1

            threads = [threading.Thread(target=writer, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for _ in range(3):
                time.sleep(0.7)
                cluster.kill()
                time.sleep(0.2)
                cluster.start()
            time.sleep(0.7)
            end.set()
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive()
            found = names(store)
        assert len(kept) > 50
        assert sorted(found) == sorted(kept), "each exactly once"
