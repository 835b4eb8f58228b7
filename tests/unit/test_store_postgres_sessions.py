"""What the sessions of a store on PostgreSQL ask for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from seedbed_server.store import Store, StoreError, episodes, place_of, postgres, rewards
from seedbed_server.store.rows import EpisodeRow, RewardRow
from tests.postgres import Cluster
from tests.unit.test_store import fill


@pytest.fixture
def store(postgres_cluster: Cluster, tmp_path: Path) -> Iterator[Store]:
    with Store(place_of(postgres_cluster.database(), tmp_path / "beside")) as opened:
        opened.submit(fill).result(10)
        yield opened


def reward(name: str, episode_id: str = "ep") -> RewardRow:
    return RewardRow(name, episode_id, None, 1.0, None, "accepted", True, 1.0)


def test_commits_wait_for_the_disk_and_readers_cannot_write(store: Store) -> None:
    def synchronous(connection: sa.Connection) -> object:
        return connection.exec_driver_sql("SHOW synchronous_commit").scalar()

    assert store.submit(synchronous).result(10) == "on"
    with pytest.raises(StoreError, match="read-only"):
        store.read_now(lambda c: rewards.insert(c, reward("a")))


def test_the_database_notices_that_a_machine_is_gone_before_a_start_gives_up_its_lock(store: Store) -> None:
    """Read from what the session asked for: on a socket in the file system none of it is in force."""
    query = "SELECT name, reset_val::integer FROM pg_settings WHERE name LIKE 'tcp%%'"
    asked = dict(store.submit(lambda c: c.exec_driver_sql(query).all()).result(10))
    silent = asked["tcp_keepalives_idle"] + asked["tcp_keepalives_count"] * asked["tcp_keepalives_interval"]
    assert 0 < silent < postgres.LOCK_SECONDS
    assert 0 < asked["tcp_user_timeout"] / 1000 < postgres.LOCK_SECONDS


def test_what_has_an_id_is_found_by_it_before_anybody_has_analysed_the_tables(store: Store) -> None:
    """12,000 episodes that were opened within the minute before the database counts them."""
    named = [f"e{number}" for number in range(12_000)]
    asked = named[100:164]
    statements: list[tuple[str, Any]] = []

    def note(_: object, __: object, statement: str, parameters: Any, *___: object) -> None:
        statements.append((statement, parameters))

    def job(connection: sa.Connection) -> list[str]:
        episodes.insert(
            connection, *(EpisodeRow(name, 0, 0, 1, 0.01, None, "open", 1.0, version=0) for name in named)
        )
        rewards.insert(connection, *(reward(name, name) for name in named))
        sa.event.listen(connection, "before_cursor_execute", note)
        assert len(rewards.by_ids(connection, asked)) == 64
        assert len(episodes.find_many(connection, asked)) == 64
        sa.event.remove(connection, "before_cursor_execute", note)
        return [
            line
            for statement, parameters in statements
            for line in connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).scalars()
        ]

    plan = store.submit(job).result(60)
    assert len(statements) == 2
    assert sum("Index Scan on" in line for line in plan) == 2
    assert "Seq Scan" not in "\n".join(plan), "\n".join(line[:200] for line in plan)
