"""Processes are killed at moments that nobody chose, under agents that post rewards all the time."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.account import account
from tests.e2e.commands import seedbed
from tests.e2e.load import Load
from tests.e2e.served import Served

pytestmark = pytest.mark.engine

LAUNCH = "launch"
ROUNDS = (
    ("engine", "gateway"),
    ("gateway", LAUNCH, "gateway"),
    ("engine", "gateway"),
    ("gateway", "engine"),
)
"""Eight kills. Each round ends with a start; in the second one a gateway falls while its engine starts."""


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


def take(server: Served, what: str) -> None:
    """SIGKILL, and the end of it; or a start that nobody waits for."""
    if what == "engine":
        pid = server.engine_pid
        os.kill(pid, signal.SIGKILL)
        server.wait_until(lambda: not _lives(pid), 30)
    elif what == "gateway":
        server.kill()
    else:
        server.launch()


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def settled(server: Served) -> dict[str, Any]:
    """The status when nobody asks any more and the last update has ended."""
    seen: list[dict[str, Any]] = []

    def still() -> bool:
        seen.append(server.status())
        last = seen[-10:]
        return (
            len(last) == 10
            and all(status["population"] is not None for status in last)
            and len({status["version"] for status in last}) == 1
        )

    server.wait_until(still, 60)
    return seen[-1]


def test_after_eight_kills_every_acknowledged_reward_is_there_once_and_the_weights_are_the_journals(
    server: Served,
) -> None:
    rng = random.Random(8)
    load = Load(lambda: server.url, "toy-llama")
    load.start()
    for steps in ROUNDS:
        time.sleep(rng.uniform(0.2, 2.0))
        for what in steps:
            take(server, what)
            time.sleep(rng.uniform(0.0, 1.0) if what != LAUNCH else rng.uniform(1.0, 5.0))
        # As an operator's supervisor does.
        server.start()
    version = server.status()["version"]
    server.wait_until(lambda: server.status()["version"] >= version + 2, 60)
    load.stop()
    status = settled(server)
    assert server.interrupt() == 0
    found = account(server.place, load)
    assert len(load.acknowledged) >= 20
    assert (found.lost, found.doubled, found.strangers, found.miscounted) == (0, 0, 0, 0)
    assert found.versions == status["version"] >= 5
    assert found.digest == status["digest"]
    replayed = seedbed("replay", "--store", server.store, "--model", server.model)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert status["digest"] in replayed.stdout
