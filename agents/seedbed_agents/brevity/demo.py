"""The demo, from its first line to its exit code.

A real model is served, asked, rewarded and changed; at the end the same held-out questions are asked again, the
server is stopped, and a fresh engine replays the journal. Exit code 0: every condition holds.
"""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from openai import OpenAIError
from rich.console import Console

from seedbed_agents.brevity.agent import Agent, Answer, connect
from seedbed_agents.brevity.evaluate import Evaluation, evaluate, spread_out
from seedbed_agents.brevity.options import recipe as recipe_of
from seedbed_agents.brevity.progress import Display, Row
from seedbed_agents.brevity.questions import HELD_OUT
from seedbed_agents.brevity.report import (
    Result,
    answers_table,
    conditions_table,
    summary,
    to_json,
    write_json,
)
from seedbed_agents.brevity.rounds import NoProgress, Status, explore_population, read_status
from seedbed_agents.brevity.run_directory import DirectoryError, RunDirectory, open_run
from seedbed_agents.brevity.server import Server, ServerError, last_lines, replay, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from seedbed_agents.brevity.options import DemoOptions, Recipe

__all__ = ["run_demo"]

PASSED, MISSED, USAGE, REFUSED, INTERRUPTED = 0, 1, 2, 3, 130
# Populations in a row that may say nothing before the demo gives up.
FRUITLESS = 5


def run_demo(options: DemoOptions) -> int:
    """Run the demo; returns the exit code.

    0 every condition holds, 1 one of them failed, 2 an option cannot be used, 3 the server could not do it,
    130 interrupted (and the same command goes on).
    """
    console = Console(highlight=False)
    recipe = recipe_of(options)
    try:
        with _interruptible(), open_run(recipe, options.store) as run:
            try:
                result = _run(console, recipe, run, options.port)
            except KeyboardInterrupt:
                console.print("\nInterrupted; the server has ended. The same command goes on where this one stopped:")
                console.print(f"  {run.path}", soft_wrap=True, markup=False)
                return INTERRUPTED
            console.print(answers_table(result.before, result.after))
            console.print(conditions_table(result))
            for line in summary(result):
                console.print(line, markup=False)
            if result.replay_digest_equal is not True:
                console.print(f"The replay said:\n{last_lines(run.path / 'replay.log')}", markup=False)
            if options.json_path is not None:
                write_json(options.json_path, to_json(result))
                console.print(f"Written: {options.json_path}", soft_wrap=True, markup=False)
            run.note(finished=True)
            return PASSED if result.passed else MISSED
    except DirectoryError as error:
        console.print(f"seedbed demo: {error}", style="red", markup=False)
        return USAGE
    except (ServerError, NoProgress, OpenAIError, OSError) as error:
        console.print(f"seedbed demo: {error}", style="red", markup=False)
        return REFUSED


def _run(console: Console, recipe: Recipe, run: RunDirectory, port: int) -> Result:
    clock = _Clock(run)
    with Display(console, recipe.updates) as display, clock:
        display.say(f"Store and logs: {run.path}")
        display.say(f"Goes on with an interrupted demo; it had reached:" if run.resumed else "Starting the server.")
        with serving(run, recipe, port, lambda s: display.doing(f"the engine loads {recipe.model}: {s:.0f} s")) as server:
            learned = asyncio.run(_Learning(recipe, run, server, display).learn())
        display.doing("the server has ended; a fresh engine replays the journal")
        equal = replay(run, recipe, lambda s: display.doing(f"a fresh engine replays the journal: {s:.0f} s"))
    if not console.is_terminal:
        pass
    else:
        console.print(display.table())
    return Result(**learned, replay_digest_equal=equal, seconds=run.notes.seconds, recipe=asdict(recipe))
