"""The gateway on PostgreSQL: learning, restarts, and a database that goes away in the middle of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from seedbed_server.store import Place, journal, place_of
from tests import postgres
from tests.postgres import Cluster
from tests.unit.fake_engine import FakeEngine
from tests.unit.gateway_server import Running, running


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A server of its own, because it is killed."""
    with postgres.cluster(postgres.needed()) as started:
        yield started


@pytest.fixture
def place(cluster: Cluster, tmp_path: Path) -> Place:
    return place_of(cluster.database(), tmp_path / "beside")


async def insist(it: Running, **fields: object) -> str:
    """Posts a reward until it is acknowledged, as an agent does."""
    while True:
        answer = await it.reward(**fields)
        if answer.status_code == 200:
            return str(answer.json()["result"])
        assert answer.status_code == 503, answer.text
        assert answer.json()["error"]["code"] == "store_unavailable"
        await asyncio.sleep(0.1)


async def test_a_store_in_a_database_learns_and_a_later_start_goes_on_from_it(
    place: Place, tmp_path: Path
) -> None:
    engine = FakeEngine()
    async with running(tmp_path, engine, place=place) as it:
        await it.population()
        await it.population()
        about = (await it.ask()).json()["seedbed"]
        digest = (await it.status())["digest"]
    async with running(tmp_path, FakeEngine(), place=place) as it:
        status = await it.status()
        assert (status["version"], status["digest"]) == (2, digest)
        answer = await it.reward(episode_id=about["episode_id"], reward=1.0)
        assert answer.json()["result"] == "accepted"
        await it.population()
        assert [row.version for row in it.gateway.store.read_now(journal.verified)] == [1, 2, 3]


async def test_a_database_that_is_killed_and_comes_back_stops_nothing_for_good(
    place: Place, tmp_path: Path, cluster: Cluster
) -> None:
    async with running(tmp_path, place=place) as it:
        await it.population()
        episodes = [(await it.ask()).json()["seedbed"]["episode_id"] for _ in range(4)]
        assert await insist(it, episode_id=episodes[0], reward=0.0, reward_id="r0") == "accepted"
        cluster.kill()
        waiting = [
            asyncio.create_task(insist(it, episode_id=episode, reward=float(i), reward_id=f"r{i}"))
            for i, episode in enumerate(episodes)
        ]
        await asyncio.sleep(0.5)
        assert not any(task.done() for task in waiting), "nothing is acknowledged that is on no disk"
        await asyncio.to_thread(cluster.start)
        results = await asyncio.wait_for(asyncio.gather(*waiting), 60)
        assert results[0] == "duplicate"
        assert set(results[1:]) <= {"accepted", "duplicate"}
        await it.until(lambda: it.gateway.updates.version == 2)
        await it.population()
        assert it.gateway.updates.version == 3


async def test_a_database_that_dies_while_a_population_closes_makes_exactly_one_update(
    place: Place, tmp_path: Path, cluster: Cluster
) -> None:
    async with running(tmp_path, place=place) as it:
        for turn in range(3):
            episodes = [(await it.ask()).json()["seedbed"]["episode_id"] for _ in range(4)]
            for i, episode in enumerate(episodes[:3]):
                await insist(it, episode_id=episode, reward=float(i), reward_id=f"{turn}-{i}")
            last = asyncio.create_task(
                insist(it, episode_id=episodes[3], reward=9.0, reward_id=f"{turn}-last")
            )
            # Somewhere between the last reward and the version after it.
            await asyncio.sleep(0.004 * turn)
            await asyncio.to_thread(cluster.kill)
            await asyncio.to_thread(cluster.start)
            await asyncio.wait_for(last, 60)
            await it.until(lambda turn=turn: it.gateway.updates.version == turn + 1)
            await it.until(
                lambda turn=turn: (
                    it.gateway.leases.population is not None
                    and it.gateway.leases.population.number == turn + 1
                )
            )
        rows = it.gateway.store.read_now(journal.verified)
        assert [row.version for row in rows] == [1, 2, 3]
        assert [row.population for row in rows] == [0, 1, 2]
        assert [row.episodes for row in rows] == [4, 4, 4]
