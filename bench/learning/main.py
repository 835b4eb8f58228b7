"""Which units there are, and what their scores say together."""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bench.harness import Result, conditions
from bench.learning.arms import AGENTS, DROP_BOUND, LIARS, RANDOM_SHARE
from bench.learning.bootstrap import Interval, interval
from bench.learning.tasks import TASKS
from bench.learning.unit import MEMBERS, Outcome, Unit, make

__all__ = ["add_arguments", "run"]

NOTES = {
    "ours_minus_noise": "held-out score of the live model, ours less noise, and its 95 % interval",
    "ours_minus_base": "the same, ours less the base model",
    "noise_minus_base": "the same, what steps of that size do that follow chance; reported only",
    "poisoned_minus_base": "the same, with liars and chance among the rewards; must not fall by guard_bound",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tasks", nargs="+", choices=sorted(TASKS), default=sorted(TASKS))
    parser.add_argument("--seeds", type=int, default=3, help="how many (default: 3)")
    parser.add_argument(
        "--poisoned", type=int, default=1, help="seeds of the poisoned arm, on the first task"
    )
    parser.add_argument(
        "--work", type=Path, help="folder that keeps what is finished (default: below SEEDBED_HOME)"
    )


def run(arguments: argparse.Namespace, console: Console) -> Result:
    if arguments.seeds < 1 or not 0 <= arguments.poisoned <= arguments.seeds:
        raise SystemExit("bench learning: --seeds must be 1 or more, --poisoned 0 to that")
    seeds = range(1, arguments.seeds + 1)
    tasks = [TASKS[name] for name in arguments.tasks]
    units = [Unit(task, 0, "base") for task in tasks]
    units += [Unit(task, seed, arm) for task in tasks for seed in seeds for arm in ("ours", "noise")]
    units += [Unit(tasks[0], seed, "poisoned") for seed in seeds[: arguments.poisoned]]
    work = (arguments.work or _home() / "bench" / "learning") / _recipe(arguments.model)
    work.mkdir(parents=True, exist_ok=True)
    console.print(
        f"What is finished is kept in {work}; the same command goes on with the rest.", soft_wrap=True
    )
    facts = conditions(
        model=arguments.model,
        tasks={
            task.name: {
                "updates": task.updates,
                "prompts_per_member": task.each,
                "held_out": len(task.held_out),
            }
            for task in tasks
        },
        seeds=list(seeds),
        members=MEMBERS,
        poison={"agents": AGENTS, "liars": LIARS, "random_share": RANDOM_SHARE},
    )
    outcomes = _make_all(units, arguments.model, work, console)
    metrics: dict[str, float] = {}
    for task in tasks:
        base = np.array(outcomes[Unit(task, 0, "base")].scores)
        ours, noise = (_scores(outcomes, task, arm) for arm in ("ours", "noise"))
        metrics[f"{task.name}_base"] = float(base.mean())
        _add(metrics, f"{task.name}_ours_minus_noise", interval(ours - noise))
        _add(metrics, f"{task.name}_ours_minus_base", interval(ours - base))
        _add(metrics, f"{task.name}_noise_minus_base", interval(noise - base))
        poisoned = _scores(outcomes, task, "poisoned")
        if len(poisoned):
            _add(metrics, f"{task.name}_poisoned_minus_base", interval(poisoned - base))
            metrics["guard_bound"] = DROP_BOUND
    notes = {name: note for name in metrics for key, note in NOTES.items() if name.endswith(key)}
    samples = {unit.name: vars(outcome) for unit, outcome in outcomes.items()}
    return Result("learning", facts, metrics, samples, notes)


def _make_all(units: list[Unit], model: str, work: Path, console: Console) -> dict[Unit, Outcome]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
    )
    outcomes = {}
    with Progress(*columns, console=console) as progress:
        for number, unit in enumerate(units, 1):
            total = unit.task.updates if unit.arm != "base" else 1
            bar = progress.add_task(f"{number} of {len(units)}  {unit.name}", total=total, text="")

            def told(text: str, made: int, bar: Any = bar) -> None:
                progress.update(bar, completed=made, text=text)

            outcome = outcomes[unit] = make(unit, model, work, told)
            score = sum(outcome.scores) / len(outcome.scores)
            progress.update(bar, completed=total, text=f"held-out score {score:.3f}, {outcome.seconds:.0f} s")
            if not console.is_terminal:
                console.print(f"{number} of {len(units)}  {unit.name}: held-out score {score:.3f}")
    return outcomes


def _scores(outcomes: dict[Unit, Outcome], task: Any, arm: str) -> np.ndarray[Any, Any]:
    """[seeds, prompts]."""
    return np.array([o.scores for unit, o in outcomes.items() if (unit.task, unit.arm) == (task, arm)])


def _add(metrics: dict[str, float], name: str, found: Interval) -> None:
    metrics |= {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}


def _recipe(model: str) -> str:
    """A name for all that outcomes depend on, so that those of another recipe are not taken for them."""
    tasks = [
        (t.name, t.each, t.updates, t.sigma, t.sigma_floor, t.alpha, t.max_tokens) for t in TASKS.values()
    ]
    forms = [item.score("1. One\n2. Two\n\nThat is all.") for t in TASKS.values() for item in t.held_out]
    return hashlib.sha256(repr((model, tasks, forms)).encode()).hexdigest()[:8]


def _home() -> Path:
    return Path(os.environ.get("SEEDBED_HOME") or "~/.local/share/seedbed").expanduser()
