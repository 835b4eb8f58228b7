"""A disk that is full, and one that is read-only, under the same agents: a small tmpfs holds the store."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.chaos.reckoning import Reckoning, reckon
from bench.chaos.victim import Victim, agents

__all__ = ["Trouble", "trouble"]

MEBIBYTES = 48
FULL_SECONDS = 8.0
REFUSALS = 4
"""Answers that a full disk must give before there is room again."""
WAIT_SECONDS = 180.0
REFUSED = 2
"""Exit code of a server that cannot use its store."""
SHOWN = 4


@dataclass(frozen=True)
class Trouble:
    """What came of it."""

    found: Reckoning
    refusals: int
    """Answers 503 that name the store and a remedy."""
    messages: list[str]
    """Some of them, and what the server said of a read-only store."""
    resumed: bool
    """Whether rewards were acknowledged, and updates made, after each of the two."""


def trouble(
    toy: Path, folder: Path, settings: dict[str, Any], arguments: argparse.Namespace, console: Console
) -> Trouble | None:
    """None where nothing can be mounted. Raises RuntimeError where service does not go on as it must."""
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        if not stack.enter_context(_tmpfs(folder)):
            return None
        victim = Victim(toy, folder, **settings)
        victim.output = (arguments.logs or folder.parent) / "disk.log"
        stack.callback(victim.end)
        console.print("disk: starting the server ...")
        victim.launch()
        victim.until_ready()
        load = agents(victim, arguments.agents)
        load.start()

        def goes_on(what: str) -> None:
            """Rewards and updates, from now on."""
            rewards, version = len(load.acknowledged), victim.status()["version"]
            victim.until(
                lambda: (
                    len(load.acknowledged) >= rewards + arguments.agents
                    and victim.seen().get("version", 0) > version
                ),
                WAIT_SECONDS,
                what,
            )

        goes_on("nothing is learned")
        before = len(load.refused)
        console.print("disk: full ...")
        with _full(folder):
            victim.rest(FULL_SECONDS)
            victim.until(
                lambda: len(load.refused) >= before + REFUSALS, WAIT_SECONDS, "a full disk refuses nothing"
            )
            # Killed on a full disk as well: the next one waits, or says what is wrong.
            victim.kill_gateway()
            victim.rest(FULL_SECONDS)
        refused = load.refused[before:]
        victim.until_ready()
        goes_on("there is room again, and service does not go on")
        console.print("disk: read-only ...")
        victim.interrupt()
        with _read_only(folder):
            victim.launch()
            code = victim.wait(WAIT_SECONDS)
        said = victim.output.read_text(errors="replace").splitlines()[-1]
        if code != REFUSED or "store" not in said:
            raise RuntimeError(f"a read-only store: the server ended with {code} and said {said!r}")
        victim.launch()
        victim.until_ready()
        goes_on("the disk can be written again, and service does not go on")
        clear = [text for text in refused if text.startswith("503") and "Make room" in text]
        messages = [text.replace(str(folder), "DISK") for text in (*sorted(set(refused))[:SHOWN], said)]
        return Trouble(reckon(victim, load, console), len(clear), messages, resumed=True)


@contextlib.contextmanager
def _tmpfs(folder: Path) -> Iterator[bool]:
    """Whether one could be mounted there; it is gone afterwards."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={MEBIBYTES}m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except OSError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, timeout=30, check=True)


@contextlib.contextmanager
def _full(folder: Path) -> Iterator[None]:
    """Not a byte is left inside."""
    ballast = folder / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(os.urandom(1 << 16))
        yield
    finally:
        ballast.unlink(missing_ok=True)


@contextlib.contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], timeout=30, check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], timeout=30, check=True)
