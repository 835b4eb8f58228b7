"""What the store takes: rewards acknowledged a second through HTTP, open episodes, memory that does not grow.

A `seedbed serve` on a toy model for each kind of store, and clients on the same machine. A round opens as
many episodes as one population takes, and posts one reward for each, so that it ends with an update: every
reward is accepted and moves weights.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.harness import Result, conditions, terminable
from bench.store_rounds import BATCH, SINGLE_POSTS, TIMED_OPENS, Found, rounds
from tests import postgres
from tests.e2e.served import Served
from tests.toys import make_toy

__all__ = ["add_arguments", "run"]

MEMBERS = 16
WARM_REWARDS = 40_000
"""Until the caches of the gateway are full, which hold 16,384 episodes."""
NOTES = {
    "rewards_per_s_sqlite": "acknowledged, in batches of 64; the bar is 2,000",
    "rewards_per_s_postgres": "the same; the bar is 2,000",
    "single_posts_per_s_sqlite": "acknowledged, one reward a request",
    "single_posts_per_s_postgres": "the same",
    "open_episodes": "open at once, without a reward",
    "open_ms_p50_beside_none": "opening one, by one client, in an empty store",
    "open_ms_p50_beside_many": "the same beside `open_episodes` others",
    "rss_mb": "resident memory of the gateway at the end",
    "rss_growth_mb": f"from {WARM_REWARDS:,} rewards on",
    "rewards": "rewards over which memory was watched",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rewards", type=int, default=200_000, help="on SQLite (default: 200000)")
    parser.add_argument(
        "--postgres-rewards", type=int, default=48_000, help="0: leave it out (default: 48000)"
    )
    parser.add_argument(
        "--round", type=int, default=12_288, help=f"rewards of one update, in {MEMBERS}s (default: 12288)"
    )
    parser.add_argument("--connections", type=int, default=8, help="clients that post (default: 8)")
    parser.add_argument("--logs", type=Path, help="folder for the logs (default: a temporary one)")


def run(arguments: argparse.Namespace, console: Console) -> Result:
    least = SINGLE_POSTS + 2 * TIMED_OPENS
    if arguments.round < least or arguments.round % MEMBERS:
        raise SystemExit(f"bench store: --round must be a multiple of {MEMBERS}, {least} or more")
    if arguments.rewards < arguments.round or arguments.connections < 1:
        raise SystemExit("bench store: --rewards must be one --round or more, --connections 1 or more")
    os.environ.update(OMP_WAIT_POLICY="passive", TOKENIZERS_PARALLELISM="false")
    binaries = postgres.binaries() if arguments.postgres_rewards else None
    facts = conditions(
        model="toy llama, 2 layers, hidden 64",
        members=MEMBERS,
        rewards_per_update=arguments.round,
        rewards_per_episode=1,
        batch=BATCH,
        connections=arguments.connections,
        clients="one process on the same machine, HTTP on loopback",
        postgres="a cluster in a temporary folder, by socket, fsync on" if binaries else "none",
        rounds_left_out="the first one, of the rates, where there are more",
    )
    metrics: dict[str, float] = {}
    samples: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(terminable())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="seedbed-bench-")))
        toy = make_toy("llama", scratch / "toy")
        lanes: list[tuple[str, str | None, int]] = [("sqlite", None, arguments.rewards)]
        if binaries:
            cluster = stack.enter_context(postgres.cluster(binaries))
            lanes.append(("postgres", cluster.database(), arguments.postgres_rewards))
        for name, url, rewards in lanes:
            folder = scratch / name
            folder.mkdir()
            console.print(f"{name}: starting the server ...")
            with _serving(toy, folder, url, arguments.round // MEMBERS) as served:
                try:
                    found = asyncio.run(
                        rounds(
                            served.url,
                            served.processes()[0],
                            rewards,
                            arguments.round,
                            arguments.connections,
                            console,
                        )
                    )
                finally:
                    if arguments.logs:
                        arguments.logs.mkdir(parents=True, exist_ok=True)
                        shutil.copy(served.output, arguments.logs / f"{name}.log")
            metrics |= _metrics(name, found, arguments.round)
            samples[name] = {
                key: value for key, value in vars(found).items() if key not in ("alone", "beside")
            }
    facts["load_after"] = [round(x, 2) for x in os.getloadavg()]
    return Result("store", facts, metrics, samples, NOTES)


def _metrics(name: str, found: Found, size: int) -> dict[str, float]:
    later = slice(1 if len(found.batches) > 1 else 0, None)
    metrics = {
        f"rewards_per_s_{name}": statistics.median(found.batches[later]),
        f"single_posts_per_s_{name}": statistics.median(found.singles[later]),
        f"episodes_opened_per_s_{name}": statistics.median(found.opens[later]),
    }
    if name != "sqlite":
        return metrics
    metrics["open_episodes"] = size - TIMED_OPENS
    metrics["open_ms_p50_beside_none"] = 1e3 * statistics.median(found.alone)
    metrics["open_ms_p50_beside_many"] = 1e3 * statistics.median(found.beside)
    metrics["rewards"], metrics["rss_mb"] = found.memory[-1]
    warm = [mebibytes for rewards, mebibytes in found.memory if rewards >= WARM_REWARDS]
    if len(warm) > 1:
        metrics["rss_growth_mb"] = warm[-1] - warm[0]
    return metrics


@contextlib.contextmanager
def _serving(toy: Path, folder: Path, url: str | None, episodes: int) -> Iterator[Served]:
    settings: dict[str, object] = {"population_size": MEMBERS, "episodes_per_member": episodes}
    if url is not None:
        settings["store_folder"] = folder
    served = Served(toy, folder, sigma=0.02, alpha=0.05, **settings)
    served.store = served.store if url is None else url
    try:
        served.start()
        yield served
    finally:
        served.end()
