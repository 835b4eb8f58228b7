"""The benchmarks by name, and the module of each; a module is imported only when its benchmark runs.

A module has `add_arguments(parser)` and `run(arguments, console) -> Result`.
"""

from __future__ import annotations

import argparse
import importlib
from dataclasses import dataclass
from typing import Protocol, cast

from rich.console import Console

from bench.harness import Result

__all__ = ["BENCHES", "Bench", "Entry"]


class Bench(Protocol):
    """What a benchmark's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace, console: Console) -> Result: ...


@dataclass(frozen=True)
class Entry:
    """One line of the list."""

    module: str
    summary: str

    def load(self) -> Bench:
        return cast("Bench", importlib.import_module(self.module))


BENCHES = {
    "chaos": Entry(
        "bench.chaos",
        "SIGKILL to gateway, engine and database under load, full disks; then every reward is looked for",
    ),
    "engine": Entry(
        "bench.engine",
        "tokens per second with 16 members beside plain SGLang and its multi-LoRA; cost of an update",
    ),
    "gateway": Entry(
        "bench.gateway",
        "latency and throughput of the gateway beside SGLang's own HTTP server",
    ),
    "learning": Entry(
        "bench.learning",
        "held-out scores after learning from true, random and poisoned rewards; about an hour, resumable",
    ),
    "store": Entry(
        "bench.store",
        "rewards acknowledged a second on SQLite and PostgreSQL, open episodes, memory over 200,000 rewards",
    ),
}
