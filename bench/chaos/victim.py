"""A server that is killed all the time, and the supervisor that starts it again."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.e2e.load import Load
from tests.e2e.served import Served

__all__ = ["Victim", "agents"]

READY_SECONDS = 400.0
ENGINE_SECONDS = 60.0
GONE_SECONDS = 30.0
SETTLE_SECONDS = 120.0
PAUSE_SECONDS = 0.1
SCHEDULER = "scheduler"


class Victim(Served):
    """`seedbed serve`; `tend` starts it again when it has ended by itself."""

    def __init__(self, model: Path, folder: Path, **settings: object) -> None:
        super().__init__(model, folder, **settings)
        self.ended: list[int] = []
        """Exit codes of servers that nobody killed."""

    def use(self, url: str) -> None:
        """A database instead of a file."""
        self.store = url
        self.settings = {**self.settings, "store_folder": self.folder}

    def wait(self, seconds: float) -> int:
        """The exit code of a server that ends by itself. Raises TimeoutExpired."""
        assert self._process is not None
        return self._process.wait(seconds)

    def tend(self) -> None:
        """What an operator's supervisor does, all the time."""
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            self.ended.append(code)
            time.sleep(PAUSE_SECONDS)
            self.launch()

    def rest(self, seconds: float) -> None:
        """Lets it run for so long, whatever state it is in."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.tend()
            time.sleep(min(PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))

    def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Raises RuntimeError with the end of the logs after so many seconds."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{what}: not within {seconds:g} s; the end of the logs:\n{self.log_tail()}"
                )
            self.rest(PAUSE_SECONDS)

    def until_ready(self) -> None:
        self.until(self.is_ready, READY_SECONDS, "the server is not ready")

    def is_ready(self) -> bool:
        """Also where it has ended."""
        return self._process is not None and self._process.poll() is None and self._answers()

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def seen(self) -> dict[str, Any]:
        """Its status; empty where it has none to give."""
        try:
            return self.status()
        except (httpx.HTTPError, ValueError):
            return {}

    def settled(self) -> dict[str, Any]:
        """The status when nothing is asked any more and no update is on its way."""
        found: list[dict[str, Any]] = []

        def still() -> bool:
            found.append(self.seen())
            population = found[-1].get("population")
            if population is None or population["members_complete"] == population["size"]:
                found.clear()
            return len(found) > 10 and len({status["version"] for status in found[-10:]}) == 1

        self.until(still, SETTLE_SECONDS, "the last update does not end")
        return found[-1]

    def kill_gateway(self) -> None:
        """SIGKILL, and another one."""
        self.tend()
        self.kill()
        self.launch()

    def kill_engine(self, rng: random.Random) -> None:
        """SIGKILL to the engine's main process, or to the one with the weights; also while it starts."""
        found: list[psutil.Process] = []

        def there() -> bool:
            found[:] = self._engine()
            return bool(found)

        self.until(there, ENGINE_SECONDS, "there is no engine")
        main, *below = found
        schedulers = [process for process in below if SCHEDULER in _name(process)]
        chosen = rng.choice(schedulers) if schedulers and rng.random() < 1 / 3 else main
        os.kill(chosen.pid, signal.SIGKILL)
        self.until(lambda: not _lives(chosen), GONE_SECONDS, f"the engine's process {chosen.pid} lives on")

    def _engine(self) -> list[psutil.Process]:
        try:
            main = psutil.Process(self.engine_pid)
            # The number on record may be another's by now.
            if not _lives(main) or "seedbed_server.engine" not in " ".join(main.cmdline()):
                return []
            return [main, *main.children(recursive=True)]
        except (OSError, ValueError, IndexError, psutil.Error):
            return []


def agents(victim: Victim, count: int) -> Load:
    """Those who ask a server wherever it is now, and post rewards."""
    return Load(lambda: victim.url, victim.model.name, count)


def _name(process: psutil.Process) -> str:
    try:
        return f"{process.name()} {' '.join(process.cmdline())}"
    except psutil.Error:
        return ""


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
