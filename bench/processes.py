"""Sides of a comparison: processes that stay alive through a run and are still unless it is their turn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc
import psutil

from seedbed.v1 import engine_pb2, engine_pb2_grpc
from seedbed_server.engine.config import EngineConfig
from seedbed_server.engine.process import EngineProcess

__all__ = ["Batch", "Ours", "Plain", "Side", "idle_cpu", "turn", "used_cpu"]

_READY_SECONDS = 900.0
_BATCH_SECONDS = 900.0


@dataclass(frozen=True)
class Batch:
    """One batch and how long it took: seconds, and the new tokens of each request."""

    seconds: float
    tokens: tuple[tuple[int, ...], ...]

    @property
    def rate(self) -> float:
        """New tokens per second."""
        return sum(map(len, self.tokens)) / self.seconds


class Side(Protocol):
    """A process that generates."""

    @property
    def pid(self) -> int:
        """Of the one above all others."""
        ...


def _tree(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def suspend(side: Side) -> None:
    """Stops the side's processes until they are resumed."""
    for process in _tree(side.pid):
        process.suspend()


def resume(side: Side) -> None:
    for process in reversed(_tree(side.pid)):
        process.resume()


@contextlib.contextmanager
def turn(side: Side) -> Iterator[None]:
    """The side runs inside and is suspended before and after."""
    resume(side)
    try:
        yield
    finally:
        suspend(side)


def used_cpu(side: Side) -> float:
    """Seconds of CPU that the side's processes have used so far."""
    times = [process.cpu_times() for process in _tree(side.pid)]
    return sum(t.user + t.system for t in times)


def idle_cpu(side: Side, seconds: float = 4.0) -> float:
    """Cores that the side uses while it is running and nobody asks it anything."""
    before, started = used_cpu(side), time.perf_counter()
    time.sleep(seconds)
    return (used_cpu(side) - before) / (time.perf_counter() - started)


class Plain:
    """SGLang without our plugin (`bench.plain_sglang`).

    Args:
        options: command line of that program.
        environment: beside that of this process, less all that would wake our plugin.
        log: file for what it prints.
    """

    def __init__(self, options: Sequence[str], environment: dict[str, str], log: Path) -> None:
        self._options, self._log = list(options), log
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SEEDBED_")}
        self._environment = {**kept, **environment}
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Raises RuntimeError when it does not come up, or if our plugin is in it."""
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "bench.plain_sglang",
                *self._options,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self._environment,
                limit=1 << 24,
                start_new_session=True,
            )
        hooks = (await self._line(_READY_SECONDS))["hooks"]
        if hooks:
            raise RuntimeError(f"plain SGLang is not plain: {hooks[0]} is hooked")

    async def generate(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, adapters: Sequence[str] | None = None
    ) -> Batch:
        assert self._process is not None
        assert self._process.stdin is not None
        command = {"prompts": prompts, "new_tokens": new_tokens, "adapters": adapters}
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        await self._process.stdin.drain()
        answer = await self._line(_BATCH_SECONDS)
        return Batch(answer["seconds"], tuple(tuple(ids) for ids in answer["tokens"]))

    async def stop(self) -> None:
        if self._process is None:
            return
        tree: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            tree = _tree(self._process.pid)
            resume(self)
        if self._process.stdin is not None:
            self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), 15)
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        await self._process.wait()

    async def _line(self, timeout: float) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), timeout)
        if not line:
            end = self._log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"plain SGLang ended; the end of its log:\n{end}")
        return json.loads(line)


class Ours:
    """Our engine, driven over its gRPC service.

    Args:
        environment: beside that of this process.
        log: file for what it prints.
        settings: fields of EngineConfig other than its address.
    """

    def __init__(self, environment: dict[str, str], log: Path, **settings: Any) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="seedbed-bench-")
        address = f"unix:{self._folder.name}/engine.sock"
        self._log = log.open("wb")
        self._process = EngineProcess(EngineConfig(address=address, **settings), self._log, environment)
        self._channel = grpc.aio.insecure_channel(address)
        self.stub = engine_pb2_grpc.EngineServiceStub(self._channel)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    async def start(self) -> None:
        await asyncio.to_thread(self._process.start, _READY_SECONDS)

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        new_tokens: int,
        addresses: Sequence[engine_pb2.Address] | None = None,
    ) -> Batch:
        """All prompts at once; without addresses on the live model, in slot 0."""
        started = time.perf_counter()
        tokens = await asyncio.gather(
            *(
                self._answer(prompt, new_tokens, addresses[i] if addresses else None)
                for i, prompt in enumerate(prompts)
            )
        )
        return Batch(time.perf_counter() - started, tuple(tokens))

    async def _answer(
        self, prompt: Sequence[int], new_tokens: int, address: engine_pb2.Address | None
    ) -> tuple[int, ...]:
        request = engine_pb2.GenerateRequest(
            token_ids=engine_pb2.TokenIds(ids=prompt),
            address=address,
            sampling=engine_pb2.Sampling(temperature=0.0, max_new_tokens=new_tokens, ignore_eos=True),
        )
        found: list[int] = []
        async for piece in self.stub.Generate(request, timeout=_BATCH_SECONDS):
            found.extend(piece.ids)
        return tuple(found)

    async def stop(self) -> None:
        await self._channel.close()
        if self._process.alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                resume(self)
        await asyncio.to_thread(self._process.stop)
        self._log.close()
        self._folder.cleanup()
