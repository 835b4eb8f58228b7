"""The clients of `./run bench store` against a gateway, in small."""

import io
import os
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from bench import store, store_rounds
from tests.unit.gateway_server import running

SIZE = 320


async def test_a_round_is_a_population_and_every_reward_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_rounds, "SINGLE_POSTS", 64)
    monkeypatch.setattr(store_rounds, "TIMED_OPENS", 16)
    console = Console(file=io.StringIO())
    episodes = SIZE // store.MEMBERS
    async with running(tmp_path, population_size=store.MEMBERS, episodes_per_member=episodes) as server:
        found = await store_rounds.rounds(server.url, psutil.Process(os.getpid()), SIZE + 1, SIZE, 4, console)
        assert (await server.status())["version"] == 2
        updates = (await server.http.get("/v1/updates")).json()["data"]
    assert [update["episodes"] for update in updates] == [SIZE, SIZE]
    assert [rewards for rewards, _ in found.memory] == [SIZE, 2 * SIZE]
    assert (len(found.batches), len(found.singles), len(found.opens)) == (2, 2, 2)
    assert (len(found.alone), len(found.beside)) == (16, 32)
    assert min(*found.batches, *found.singles, *found.opens) > 0
