"""Processes are killed at random moments, under agents that post rewards all the time; then the disk is full.

Afterwards every acknowledged reward must be in the store exactly once, nothing may be there that nobody
posted, versions must follow one another, and a fresh engine must make the live digest from base and journal.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.chaos import disk
from bench.chaos.reckoning import Reckoning, reckon
from bench.chaos.victim import Victim, agents
from bench.harness import Result, conditions, terminable
from tests import postgres
from tests.toys import make_toy

__all__ = ["add_arguments", "plan", "run"]

GATEWAY, ENGINE, DATABASE = "gateway", "engine", "database"
CALM_SECONDS = 3.0
"""The longest time from ready to the next kill; half of all kills do not wait for that."""
ROUGH_SECONDS = 5.0
AWAY_SECONDS = 2.0
"""How long a killed database stays away, at most."""
NOTES = {
    "rewards_lost": "acknowledged and not in the store",
    "rewards_doubled": "in the store more than once, or counted more than once",
    "rewards_strange": "in the store, and not as somebody posted them",
    "updates_miscounted": "updates whose rewards are not those that their populations hold",
    "answers_unexpected": "errors other than 429 and 503",
    "digest_equal": "1: a fresh engine makes the live digest from base and journal, in each phase",
    "gateway_ends": "gateways that ended by themselves, with an error, and were started again",
    "engine_kills": "of the main process, or of the one with the weights",
    "disk_refusals": "answers 503 while the disk was full, all with a remedy",
    "disk_resumed": "1: rewards and updates went on when there was room, and after the disk was read-only",
}


@dataclass
class _Counts:
    """Kills by what was killed."""

    of: dict[str, int] = field(default_factory=lambda: {GATEWAY: 0, ENGINE: 0, DATABASE: 0})
    unready: int = 0
    """Kills that did not wait until the server was ready."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=50, help="a third of them of the engine (default: 50)")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the moments and of what is killed (default: 1)"
    )
    parser.add_argument(
        "--snapshot-every", type=int, default=10, help="updates between snapshots; 0: none (default: 10)"
    )
    store = parser.add_mutually_exclusive_group()
    store.add_argument("--store", metavar="URL", help="an empty database, which is not killed")
    store.add_argument(
        "--postgres", action="store_true", help="a PostgreSQL server of its own, which is killed as well"
    )
    parser.add_argument("--agents", type=int, default=4, help="agents that post (default: 4)")
    parser.add_argument("--without-disk", action="store_true", help="leave full and read-only disks out")
    parser.add_argument("--logs", type=Path, help="folder for the logs (default: a temporary one)")


def run(arguments: argparse.Namespace, console: Console) -> Result:
    if arguments.kills < 0 or arguments.snapshot_every < 0 or arguments.agents < 1:
        raise SystemExit("bench chaos: --kills and --snapshot-every must be 0 or more, --agents 1 or more")
    os.environ.update(OMP_WAIT_POLICY="passive", TOKENIZERS_PARALLELISM="false")
    binaries = None
    if arguments.postgres and (binaries := postgres.binaries()) is None:
        raise SystemExit(
            "bench chaos: PostgreSQL is not installed (Debian and Ubuntu: apt install postgresql)"
        )
    settings: dict[str, Any] = {
        "population_size": 4, "sigma": 0.02, "alpha": 0.05, "snapshot_every": arguments.snapshot_every
    }  # fmt: skip
    facts = conditions(
        model="toy llama, 2 layers, hidden 64",
        store="postgres" if arguments.postgres or arguments.store else "sqlite",
        kills=arguments.kills,
        seed=arguments.seed,
        agents=arguments.agents,
        settings=settings,
        moments=f"half within {CALM_SECONDS:g} s of ready, half within {ROUGH_SECONDS:g} s of the last",
    )
    metrics: dict[str, float] = {}
    samples: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(terminable())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="seedbed-chaos-")))
        toy = make_toy("llama", scratch / "toy")
        folder = scratch / "store"
        folder.mkdir()
        cluster = stack.enter_context(postgres.cluster(binaries)) if binaries else None
        victim = Victim(toy, folder, **settings)
        if cluster is not None:
            victim.use(cluster.database())
        elif arguments.store:
            victim.use(arguments.store)
        if arguments.logs:
            arguments.logs.mkdir(parents=True, exist_ok=True)
            victim.output = arguments.logs / "serve.log"
        stack.callback(victim.end)
        started = time.monotonic()
        counts = _Counts()
        found = _kills(victim, cluster, arguments, counts, console)
        metrics["kills"] = sum(counts.of.values())
        metrics |= {f"{what}_kills": number for what, number in counts.of.items()}
        metrics["gateway_ends"] = len(victim.ended)
        samples["kills"] = {"unready": counts.unready, "ended": victim.ended, **vars(found)}
        facts["seconds"] = round(time.monotonic() - started, 1)
        phases = [found]
        if not arguments.without_disk:
            trouble = disk.trouble(toy, scratch / "disk", settings, arguments, console)
            if trouble is None:
                facts["disk"] = "left out: no tmpfs can be mounted here"
            else:
                phases.append(trouble.found)
                metrics["disk_refusals"], metrics["disk_resumed"] = trouble.refusals, float(trouble.resumed)
                samples["disk"] = {"messages": trouble.messages, **vars(trouble.found)}
        metrics |= _sums(phases)
    facts["load_after"] = [round(x, 2) for x in os.getloadavg()]
    return Result("chaos", facts, metrics, samples, NOTES)


def _sums(phases: list[Reckoning]) -> dict[str, float]:
    return {
        "rewards_acknowledged": sum(found.acknowledged for found in phases),
        "rewards_lost": sum(found.lost for found in phases),
        "rewards_doubled": sum(found.doubled for found in phases),
        "rewards_strange": sum(found.strangers for found in phases),
        "updates_miscounted": sum(found.miscounted for found in phases),
        "answers_unexpected": sum(len(found.unexpected) for found in phases),
        "versions": sum(found.versions for found in phases),
        "versions_consecutive": float(all(found.consecutive for found in phases)),
        "digest_equal": float(all(found.digest_equal for found in phases)),
    }


def _kills(
    victim: Victim,
    cluster: postgres.Cluster | None,
    arguments: argparse.Namespace,
    counts: _Counts,
    console: Console,
) -> Reckoning:
    rng = random.Random(arguments.seed)
    victim.launch()
    victim.until_ready()
    load = agents(victim, arguments.agents)
    load.start()
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("kills", total=arguments.kills)
        for what in plan(arguments.kills, rng, database=cluster is not None):
            if rng.random() < 0.5:
                victim.until_ready()
                victim.rest(rng.uniform(0, CALM_SECONDS))
            else:
                victim.rest(rng.uniform(0, ROUGH_SECONDS))
                counts.unready += not victim.is_ready()
            if what == GATEWAY:
                victim.kill_gateway()
            elif what == ENGINE:
                victim.kill_engine(rng)
            else:
                assert cluster is not None
                cluster.kill()
                victim.rest(rng.uniform(0, AWAY_SECONDS))
                cluster.start()
            counts.of[what] += 1
            text = ", ".join(f"{number} {name}" for name, number in counts.of.items() if number)
            progress.update(
                task, advance=1, description=f"kills ({text}), {len(load.acknowledged)} rewards acknowledged"
            )
            if not console.is_terminal:
                console.print(f"{what}: {text}; {len(load.acknowledged)} rewards acknowledged")
    return reckon(victim, load, console)


def plan(kills: int, rng: random.Random, *, database: bool) -> list[str]:
    """What is killed, in order: a third engines; with a database of our own a fifth of that as well."""
    engines = -(-kills // 3)
    databases = kills // 5 if database else 0
    order = [ENGINE] * engines + [DATABASE] * databases + [GATEWAY] * (kills - engines - databases)
    rng.shuffle(order)
    return order
