"""Processes that write to a store are killed, and so is the database: what was acknowledged is there once."""

from __future__ import annotations

import contextlib
import random
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from seedbed_server.store import Store, place_of, tables
from tests import postgres
from tests.postgres import Cluster
from tests.unit.store_poster import EPISODES, episode_of, reward_of

ROOT = Path(__file__).parents[2]
THREADS = 3
KILLS = 4
START_SECONDS = 60.0


class Poster:
    """One process after the other on the same store; `done` is what all of them were told."""

    def __init__(self, store: str, folder: Path) -> None:
        self._store, self._folder = store, folder
        self.done = [0] * THREADS

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """From its first acknowledged reward to its SIGKILL."""
        command = [sys.executable, "-m", "tests.unit.store_poster", self._store, str(self._folder)]
        process = subprocess.Popen([*command, *map(str, self.done)], stdout=subprocess.PIPE, cwd=ROOT)
        assert process.stdout is not None
        try:
            ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
            assert ready, "nothing was acknowledged"
            yield
        finally:
            process.kill()
            said = process.stdout.read().decode()
            process.wait(30)
            process.stdout.close()
        for line in said.splitlines():
            thread, number = map(int, line.split())
            assert number == self.done[thread], "each one after the other"
            self.done[thread] += 1


@pytest.fixture(params=["sqlite", "postgres"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster | None]:
    """A server of its own, because it is killed; None for SQLite."""
    if request.param == "sqlite":
        yield None
        return
    with postgres.cluster(postgres.needed()) as started:
        yield started


def test_what_was_acknowledged_is_there_once_whoever_was_killed(
    cluster: Cluster | None, tmp_path: Path
) -> None:
    store = str(tmp_path / "store.sqlite") if cluster is None else cluster.database()
    poster = Poster(store, tmp_path)
    rng = random.Random(5)
    for _ in range(KILLS):
        with poster.running():
            time.sleep(rng.uniform(0.0, 0.3))
            if cluster is not None:
                cluster.kill()
                time.sleep(rng.uniform(0.0, 0.3))
                cluster.start()
                time.sleep(rng.uniform(0.0, 0.6))
    assert all(KILLS <= done < EPISODES for done in poster.done), poster.done
    with Store(place_of(store, None if cluster is None else tmp_path)) as opened:
        rows = opened.read_now(lambda connection: connection.execute(sa.select(tables.rewards)).all())
    kept = Counter((row.reward_id, row.episode_id, row.reward, bool(row.counts)) for row in rows)
    told = [(thread, number) for thread, done in enumerate(poster.done) for number in range(done)]
    # What each thread was about to be told may be there or not.
    next_ones = list(enumerate(poster.done))
    named = {
        place: (episode_of(*place), episode_of(*place), reward_of(*place), True)
        for place in [*told, *next_ones]
    }
    assert [place for place in told if kept[named[place]] != 1] == []
    assert set(kept) <= set(named.values())
    assert max(kept.values()) == 1
