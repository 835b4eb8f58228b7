"""A process that posts rewards to a store of its own, until it is killed.

`python -m tests.unit.store_poster STORE FOLDER DONE...`: one thread for each DONE, the number of rewards that
it has been told of before. Standard output gets a line for each reward that is kept: its thread, its number.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from seedbed_server.gateway import verdicts
from seedbed_server.gateway.populations import save_population
from seedbed_server.gateway.verdicts import Posted
from seedbed_server.learner import Given
from seedbed_server.store import Store, StoreError, episodes, place_of, runs
from seedbed_server.store.rows import EpisodeRow
from tests.unit.store_desk import NOW, RUN, plan

__all__ = ["EPISODES", "episode_of", "reward_of"]

PLAN = plan(population_size=4, episodes_per_member=10_000)
EPISODES = 3_000
"""Of each thread."""
KEPT = ("accepted", "duplicate")


def episode_of(thread: int, number: int) -> str:
    """The episode of a thread's reward, and the reward's own name."""
    return f"{thread}-{number}"


def reward_of(thread: int, number: int) -> float:
    return thread + number / EPISODES


def fill(connection: sa.Connection, threads: int) -> None:
    """One open population; nothing if it is there."""
    if episodes.find(connection, episode_of(0, 0)) is not None:
        return
    population = PLAN.population(0, 0, 0, 0.0)
    runs.insert(connection, RUN)
    save_population(connection, population)
    member = population.members[0]
    episodes.insert(
        connection,
        *(
            EpisodeRow(
                episode_of(thread, number), 0, member.index, member.seed, 0.1, None, "open", 1.0, version=0
            )
            for thread in range(threads)
            for number in range(EPISODES)
        ),
    )


def post(store: Store, thread: int, number: int) -> None:
    """As a gateway does, for an agent that tries again until it is told."""
    name = episode_of(thread, number)
    posted = [Posted(Given(name, None, reward_of(thread, number), name, None))]
    while True:
        try:
            job = partial(verdicts.decide, posted=posted, rules=PLAN.rewards, now=NOW)
            result = store.submit(job).result(60)[0].verdict.result
        except StoreError:
            time.sleep(0.05)
            continue
        assert result in KEPT, result
        os.write(1, f"{thread} {number}\n".encode())
        return


def main() -> None:
    place, folder, *done = sys.argv[1:]
    with Store(place_of(place, Path(folder) if "://" in place else None)) as store:
        store.submit(partial(fill, threads=len(done))).result(60)

        def work(thread: int, first: int) -> None:
            for number in range(first, EPISODES):
                post(store, thread, number)

        threads = [
            threading.Thread(target=work, args=(thread, int(first))) for thread, first in enumerate(done)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
