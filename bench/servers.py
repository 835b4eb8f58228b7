"""The servers that `bench gateway` compares, each a process of its own on a free port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

__all__ = ["NAME", "Server", "engine_address", "our_command", "proxy_command", "serving", "sglang_command"]

NAME = "bench"
START_SECONDS = 600.0


@dataclass(frozen=True)
class Server:
    """A running server."""

    url: str
    pid: int


def sglang_command(model: Path, dtype: str, device: str, attention: str) -> list[str]:
    """SGLang's own server, with the settings of ours wherever both have them."""
    own = {"name": NAME, "requests": 16, "attention": attention}
    return [sys.executable, "-m", "bench.sglang_server", *_options(_common(model, dtype, device) | own)]


def our_command(model: Path, dtype: str, device: str, folder: Path) -> list[str]:
    """Ours, which never comes to an update."""
    folder.mkdir(parents=True, exist_ok=True)
    own = {
        "served-name": NAME, "store": folder / "store.sqlite", "population-size": 16,
        "episodes-per-member": 1_000_000, "slots": 16, "max-running-requests": 16, "log-level": "error",
    }  # fmt: skip
    program = ["-c", "from seedbed_server.launch import main; main()", "serve"]
    return [sys.executable, *program, *_options(_common(model, dtype, device) | own)]


def proxy_command(to: str) -> list[str]:
    """A proxy that only passes bytes on."""
    return [sys.executable, "-m", "bench.pass_through", f"--to={to}"]


def _common(model: Path, dtype: str, device: str) -> dict[str, Any]:
    return {"model": model, "dtype": dtype, "device": device, "max-total-tokens": 16384}


def _options(values: dict[str, Any]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]


def engine_address(server: Server) -> str:
    """Where the engine below our server listens. Raises RuntimeError when there is none."""
    for process in psutil.Process(server.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if "seedbed_server.engine" in words:
                return str(json.loads(words[words.index("--config") + 1])["address"])
    raise RuntimeError(f"{server.url} has no engine")


@contextlib.asynccontextmanager
async def serving(command: list[str], log: Path) -> AsyncIterator[Server]:
    """The server of a command, from when it is ready on; ended afterwards with all below it."""
    port = _free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SEEDBED_")}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, f"--port={port}", stdout=output, stderr=output, env=environment, start_new_session=True
        )
    server = Server(f"http://127.0.0.1:{port}", process.pid)
    try:
        await _until_ready(server, process, log, own_word="bench.sglang_server" in command)
        yield server
    finally:
        tree = psutil.Process(process.pid).children(recursive=True) if process.returncode is None else []
        if process.returncode is None:
            process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 30)
        for left in (*tree, *([psutil.Process(process.pid)] if process.returncode is None else [])):
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()


async def _until_ready(server: Server, process: Any, log: Path, *, own_word: bool) -> None:
    """Raises RuntimeError when it ends or takes too long, or when our plugin is in SGLang's server.

    own_word: it says itself that it is ready, in its log.
    """
    deadline = time.monotonic() + START_SECONDS
    while not await _is_ready(server, log, own_word=own_word):
        if process.returncode is not None or time.monotonic() > deadline:
            end = log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{server.url} did not come up; the end of its log:\n{end}")
        await asyncio.sleep(0.5)


async def _is_ready(server: Server, log: Path, *, own_word: bool) -> bool:
    if own_word:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith('{"ready"')]
        if lines and (hooks := json.loads(lines[-1])["hooks"]):
            raise RuntimeError(f"SGLang's server is not plain: {hooks[0]} is hooked")
        return bool(lines)
    timeout = aiohttp.ClientTimeout(total=5)
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        # A proxy answers for what is behind it, which has no such route.
        async with aiohttp.request("GET", f"{server.url}/readyz", timeout=timeout) as answer:
            return answer.status in (200, 404)
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
