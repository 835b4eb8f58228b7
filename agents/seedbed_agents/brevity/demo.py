"""The demo, from its first line to its exit code.

A real model is served, asked, rewarded and changed; at the end the same held-out questions are asked again,
the server is stopped, and a fresh engine replays the journal. Exit code 0: every condition of `report`
holds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from openai import OpenAIError
from rich.console import Console

from seedbed_agents.brevity.learning import learn
from seedbed_agents.brevity.options import recipe_of
from seedbed_agents.brevity.progress import Display
from seedbed_agents.brevity.report import (
    Result,
    answers_table,
    conditions_table,
    summary,
    to_json,
    write_json,
)
from seedbed_agents.brevity.rounds import NoProgress
from seedbed_agents.brevity.run_directory import DirectoryError, RunDirectory, open_run
from seedbed_agents.brevity.server import ServerError, last_lines, replay, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from seedbed_agents.brevity.options import DemoOptions, Recipe

__all__ = ["run_demo"]

# Columns of the tables in a pipe or a log, which have no width of their own.
LOG_WIDTH = 140
PASSED, MISSED, USAGE, REFUSED, INTERRUPTED = 0, 1, 2, 3, 130


def run_demo(options: DemoOptions) -> int:
    """Run the demo; returns the exit code.

    0 every condition holds, 1 one of them failed, 2 an option cannot be used, 3 the server could not do it,
    130 interrupted (the same command goes on).
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=LOG_WIDTH)
    recipe = recipe_of(options)
    try:
        if options.json_path is not None:
            _check_writable(options.json_path)
        with _termination_interrupts(), open_run(recipe, options.store) as run:
            try:
                return _run(console, options, recipe, run)
            except KeyboardInterrupt:
                _explain_interruption(console, run)
                return INTERRUPTED
            except (ServerError, NoProgress, OpenAIError) as error:
                _complain(console, error)
                console.print(f"The server's log: {run.path / 'server.log'}", markup=False, soft_wrap=True)
                return REFUSED
    except (DirectoryError, OSError) as error:
        _complain(console, error)
        return USAGE


def _run(console: Console, options: DemoOptions, recipe: Recipe, run: RunDirectory) -> int:
    with Display(console, recipe.updates) as display, _timed(run):
        display.say(f"Store, notes and logs of this demo: {run.path}")
        with serving(
            run, recipe, options.port, lambda spent: display.doing(f"loading {recipe.model}, {spent:.0f} s")
        ) as server:
            display.say(f"{recipe.model} is served at {server.base_url}")
            learned = asyncio.run(learn(recipe, run, server.base_url, display))
            display.doing("the server ends")
        display.say("The server has ended. A fresh engine replays the journal.")
        equal = replay(run, recipe, lambda spent: display.doing(f"replay in a fresh engine, {spent:.0f} s"))
    if console.is_terminal:
        console.print(display.table())
    result = Result(learned, equal, run.notes.seconds, asdict(recipe))
    console.print(answers_table(learned.before, learned.after))
    console.print(conditions_table(result))
    for line in summary(result):
        console.print(line, markup=False)
    if equal is not True:
        console.print(f"The replay said:\n{last_lines(run.path / 'replay.log')}", markup=False)
    if options.json_path is not None:
        write_json(options.json_path, to_json(result))
        console.print(f"Written: {options.json_path}", markup=False, soft_wrap=True)
    run.note(finished=True)
    return PASSED if result.passed else MISSED


def _explain_interruption(console: Console, run: RunDirectory) -> None:
    console.print("\nInterrupted. The server has ended and its store is whole; nothing is left running.")
    if run.notes.before is None:
        console.print("Nothing was learned yet; the same command starts again.")
    else:
        console.print("The same command goes on from the last update that was made. The store:")
    console.print(f"  {run.store}", markup=False, soft_wrap=True)


def _complain(console: Console, error: Exception) -> None:
    console.print(f"seedbed demo: {error}", style="red", markup=False, soft_wrap=True)


def _check_writable(path: Path) -> None:
    """Fail before the work, not after it, when the results could not be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise DirectoryError(f"--json: {path} cannot be written; give a file in a folder that you may write")


@contextmanager
def _timed(run: RunDirectory) -> Iterator[None]:
    """Adds the time spent inside to the notes, however it ends."""
    begin = time.monotonic()
    try:
        yield
    finally:
        run.note(seconds=run.notes.seconds + time.monotonic() - begin)


@contextmanager
def _termination_interrupts() -> Iterator[None]:
    """SIGTERM and SIGHUP end the demo the way Ctrl-C does."""
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
