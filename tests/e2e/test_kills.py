"""Processes are killed at moments that nobody chose, under agents that post rewards all the time."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.account import account
from tests.e2e.commands import seedbed
from tests.e2e.load import Load
from tests.e2e.served import Served

pytestmark = pytest.mark.engine

KILLS = (("gateway",), ("engine", "gateway"), ("gateway",), ("engine", "gateway"), ("engine", "gateway"))
"""Eight. What stands together falls within a second: the gateway while the next engine starts."""


@pytest.fixture
def server(toy_folder: Callable[..., Path], tmp_path: Path) -> Iterator[Served]:
    served = Served(
        toy_folder("llama"), tmp_path, population_size=4, sigma=0.02, alpha=0.05, snapshot_every=3
    )
    try:
        served.start()
        yield served
    finally:
        served.end()


def kill(server: Served, what: str) -> None:
    """SIGKILL, and the end of it."""
    if what == "engine":
        pid = server.engine_pid
        os.kill(pid, signal.SIGKILL)
        server.wait_until(lambda: not _lives(pid), 30)
    else:
        server.kill()


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_after_eight_kills_every_acknowledged_reward_is_there_once_and_the_weights_are_the_journals(
    server: Served,
) -> None:
    rng = random.Random(8)
    load = Load(lambda: server.url, "toy-llama")
    load.start()
    for together in KILLS:
        time.sleep(rng.uniform(0.2, 2.0))
        for what in together:
            kill(server, what)
            time.sleep(rng.uniform(0.0, 1.0))
        # As an operator's supervisor does.
        server.start()
    version = server.status()["version"]
    server.wait_until(lambda: server.status()["version"] >= version + 2, 60)
    load.stop()
    begun = time.monotonic()
    while server.status()["population"] is None and time.monotonic() - begun < 30:
        time.sleep(0.1)
    status = server.status()
    with server.http() as client:
        measured = client.get("/v1/status").json()["digest"]
    assert server.interrupt() == 0
    found = account(server.place, load)
    print(f"{len(load.acknowledged)} rewards acknowledged, {load.results}, {found}")
    assert len(load.acknowledged) >= 20
    assert (found.lost, found.doubled, found.strangers, found.miscounted) == (0, 0, 0, 0)
    assert found.versions == status["version"] >= 5
    assert found.digest == measured
    replayed = seedbed("replay", "--store", server.store, "--model", server.model)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert measured in replayed.stdout
