"""What all benchmarks share: the result and its file, the conditions, and statistics of turns."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["Result", "conditions", "median_ratio", "print_result", "terminable", "write_result"]

ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("torch", "sglang", "transformers", "numpy", "grpcio", "seedbed")


@dataclass(frozen=True)
class Result:
    """What a benchmark found.

    Attributes:
        bench: its name.
        conditions: all that the numbers depend on.
        metrics: one number for each name; a number that could not be had is left out.
        samples: the single measurements behind them.
        notes: what each metric means, where its name does not say it; for the table only.
    """

    bench: str
    conditions: Mapping[str, Any]
    metrics: Mapping[str, float]
    samples: Mapping[str, Any]
    notes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.metrics.items():
            if not math.isfinite(value):
                raise ValueError(f"metrics.{name}: {value} is not finite; leave out what was not measured")

    def to_json(self) -> str:
        return json.dumps(
            {
                "bench": self.bench,
                "conditions": self.conditions,
                "metrics": self.metrics,
                "samples": self.samples,
            },
            indent=1,
        )


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM ends a benchmark and its servers as Ctrl-C does."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """The median of over[i] / under[i]: turn i measured both, one right after the other."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def conditions(**more: Any) -> dict[str, Any]:
    """The machine, the versions and the revision, with what the benchmark adds."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "revision": _revision(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_before": [round(x, 2) for x in os.getloadavg()],
        "gpu": _gpu(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version(), **_versions()},
        **more,
    }


def print_result(result: Result, console: Console) -> None:
    table = Table(title=f"bench {result.bench}", title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("")
    for name, value in result.metrics.items():
        table.add_row(name, _number(value), result.notes.get(name, ""))
    console.print(table)


def write_result(result: Result, path: Path) -> None:
    """Writes the JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(result.to_json() + "\n")
    draft.replace(path)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _gpu() -> str:
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return _output(query).replace("\n", ", ") or "none"


def _revision() -> str:
    """The commit that HEAD names; with a + where files differ from it, and unknown outside a repository."""
    commit = _output(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"])
    if not commit:
        return "unknown"
    return commit + ("+" if _output(["git", "-C", str(ROOT), "status", "--porcelain"]) else "")


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
