"""The server as the demo's own child: started on a free loopback port, waited for, ended in order.

The child has a session of its own, so that Ctrl-C reaches the demo alone, which then ends the server the
way an operator would. If the demo is killed, the kernel tells the server to end.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from seedbed_agents.brevity.options import Recipe
    from seedbed_agents.brevity.run_directory import RunDirectory

__all__ = ["Server", "ServerError", "last_lines", "replay", "served", "serving"]

START_SECONDS = 900.0
STOP_SECONDS = 60.0
REPLAY_SECONDS = 1800.0
POLL_SECONDS = 0.25
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class ServerError(RuntimeError):
    """The server did not start, or ended too early; the message has its last words."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is ready."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def base_url(self) -> str:
        """What an OpenAI client is given."""
        return f"http://127.0.0.1:{self.port}/v1"


@contextmanager
def serving(
    run: RunDirectory, recipe: Recipe, port: int, waiting: Callable[[float], None]
) -> Iterator[Server]:
    """`served` with the settings of a demo."""
    settings: dict[str, object] = {
        "model": recipe.model,
        "store": run.store,
        "population-size": recipe.members,
        "episodes-per-member": recipe.questions_per_population,
        "sampling": "one-sided",
        "sigma": recipe.sigma,
        "sigma-floor": recipe.sigma_floor,
        "sigma-schedule": "cosine",
        "alpha": recipe.alpha,
        "alpha-schedule": "constant",
        "total-updates": recipe.updates,
        "run-seed": recipe.seed,
    }
    with served(settings, run.path / "server.log", port, waiting) as server:
        yield server


@contextmanager
def served(
    settings: Mapping[str, object], log: Path, port: int, waiting: Callable[[float], None]
) -> Iterator[Server]:
    """Start `seedbed serve` on loopback, and end it when the context ends, however it ends.

    `settings` are its flags, without dashes. Port 0 is a free one. `waiting` hears the seconds since the
    start, several times a second. Raises ServerError.
    """
    port = port or _free_port()
    settings = {**settings, "host": "127.0.0.1", "port": port, "start-seconds": START_SECONDS}
    arguments = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    process = _start(["serve", *arguments], log)
    try:
        _wait_until_ready(process, port, log, waiting)
        yield Server(process, port, log)
    finally:
        _stop(process)


def replay(run: RunDirectory, recipe: Recipe, waiting: Callable[[float], None]) -> bool | None:
    """Whether a fresh engine that replays the journal has the digest on record; None if it could not be seen.

    The server must have ended: a store has one owner at a time.
    """
    log = run.path / "replay.log"
    process = _start(["replay", "--store", str(run.store), "--model", recipe.model], log)
    begin = time.monotonic()
    try:
        while process.poll() is None and time.monotonic() - begin < REPLAY_SECONDS:
            waiting(time.monotonic() - begin)
            time.sleep(POLL_SECONDS)
    finally:
        _stop(process)
    return {0: True, 1: False}.get(process.returncode)


def last_lines(log: Path, count: int = 12) -> str:
    """The end of a log, for people."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
    except OSError:
        return ""


def _start(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            [_command(), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )


def _command() -> str:
    """The `seedbed` command of this very installation."""
    beside = Path(sysconfig.get_path("scripts")) / "seedbed"
    command = str(beside) if beside.exists() else shutil.which("seedbed")
    if command is None:
        raise ServerError("the command `seedbed` is not installed here; install it with: ./run setup")
    return command


def _wait_until_ready(
    process: subprocess.Popen[bytes], port: int, log: Path, waiting: Callable[[float], None]
) -> None:
    begin = time.monotonic()
    while True:
        seconds = time.monotonic() - begin
        if process.poll() is not None:
            raise ServerError(f"the server ended with code {process.returncode}:\n{last_lines(log)}")
        if seconds > START_SECONDS:
            raise ServerError(f"the server is not ready after {seconds:.0f} s:\n{last_lines(log)}")
        waiting(seconds)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as reply:
                if reply.status == 200:
                    return
        except (OSError, urllib.error.URLError):
            pass  # not listening yet, or not ready
        time.sleep(POLL_SECONDS)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a child in order, within a bound. A second Ctrl-C does not cut it short."""
    if process.poll() is not None:
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
    finally:
        signal.signal(signal.SIGINT, before)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _end_with_parent() -> None:
    """In the child, before it becomes the server: SIGTERM when the demo is gone."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
