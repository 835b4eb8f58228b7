"""A fresh engine of one's own, without a gateway: for what is done with a store that nobody serves."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc.aio

from seedbed.v1 import engine_pb2 as pb
from seedbed.v1.engine_pb2_grpc import EngineServiceStub
from seedbed_server.engine.config import ConfigError, EngineConfig
from seedbed_server.engine.process import EngineRefusedError
from seedbed_server.gateway.child import ChildFactory
from seedbed_server.gateway.link_types import CALL_SECONDS, HEARTBEAT_SECONDS, RESTORE_SECONDS, connect
from seedbed_server.models import ModelError
from seedbed_server.store import StoreError, StoreMismatch
from seedbed_server.store.rows import RunRow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from seedbed.v1.engine_pb2_grpc import EngineServiceAsyncStub
    from seedbed_server.gateway.link_types import Child
    from seedbed_server.gateway.ways import Way
    from seedbed_server.models import ModelSource

__all__ = [
    "NO",
    "OK",
    "REFUSED",
    "USAGE",
    "Fresh",
    "complain",
    "fresh_engine",
    "say",
    "split_scope",
    "start",
    "tried",
]

OK, NO, USAGE, REFUSED = 0, 1, 2, 3
START_SECONDS = 600.0


@dataclass(frozen=True)
class Fresh:
    """A claimed engine that has loaded its base."""

    stub: EngineServiceAsyncStub
    term: int
    loaded: pb.DescribeResponse

    def identity(self) -> RunRow:
        """What its weights mean, as a run of its own."""
        return RunRow(
            created_at=0.0,
            model=self.loaded.model,
            base_digest=self.loaded.base_digest,
            start_digest=self.loaded.state.digest,
            dtype=self.loaded.dtype,
            scope=self.loaded.scope,
            noise_version=self.loaded.noise_version,
            rank=self.loaded.rank,
            settings={},
            term=0,
        )

    async def restore(self, way: Way) -> pb.State:
        """Goes the way to a version and reads every weight again: the digest is not one kept on the way."""
        await self.stub.Restore(way.request(self.term), timeout=RESTORE_SECONDS)
        return (await self.stub.Digest(pb.DigestRequest(), timeout=RESTORE_SECONDS)).state

    async def snapshot(self, folder: Path) -> int:
        """Writes the weights as they are. Returns the bytes."""
        request = pb.SnapshotRequest(folder=str(folder), term=self.term)
        return int((await self.stub.Snapshot(request, timeout=RESTORE_SECONDS)).bytes)


def start(
    stack: contextlib.ExitStack, beside: Path, source: ModelSource, run: RunRow, what: str
) -> tuple[Child, Path]:
    """Starts an engine with the settings of a run; the stack ends it. Returns it and where its log is.

    beside: a path whose folder takes the engine's log. Raises ConfigError, EngineRefusedError.
    """
    children = ChildFactory(beside, lambda address: _config(run, source, address))
    stack.callback(children.close)
    child = children()
    stack.callback(child.stop)
    say(f"Starting a fresh engine to {what}. Its log is {children.log_path}")
    child.start(START_SECONDS)
    return child, children.log_path


@contextlib.asynccontextmanager
async def fresh_engine(child: Child, term: int) -> AsyncIterator[Fresh]:
    """Claims an engine, and lets it hear somebody as long as it is used."""
    async with connect(child.address) as channel:
        stub = EngineServiceStub(channel)
        loaded = await stub.Describe(pb.DescribeRequest(term=term), timeout=CALL_SECONDS)
        beat = asyncio.ensure_future(_beat(stub, term))
        try:
            yield Fresh(stub, term, loaded)
        finally:
            beat.cancel()


def tried(work: Callable[[contextlib.ExitStack], int], what: str) -> int:
    """Runs a command; what can go wrong becomes its message and its exit code. What it started is ended."""
    with contextlib.ExitStack() as stack:
        try:
            return work(stack)
        except (ModelError, EngineRefusedError) as error:
            return complain(str(error), REFUSED)
        except (ConfigError, StoreError, OSError) as error:
            return complain(str(error), REFUSED if isinstance(error, StoreMismatch) else USAGE)
        except grpc.aio.AioRpcError as error:
            return complain(f"the engine could not {what} ({error.details()})", REFUSED)


def say(text: str) -> None:
    """To stdout, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def complain(text: str, code: int) -> int:
    """To stderr; returns the exit code."""
    sys.stderr.write(f"seedbed: {text}\n")
    return code


def split_scope(text: str) -> tuple[str, list[str]]:
    """The operator's scope, and the patterns that were excluded, out of what an engine says."""
    scope, *exclude = text.split(",!")
    return scope, exclude


async def _beat(stub: EngineServiceAsyncStub, term: int) -> None:
    """An engine ends itself when it hears nobody."""
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        with contextlib.suppress(grpc.aio.AioRpcError):
            await stub.Describe(pb.DescribeRequest(term=term), timeout=CALL_SECONDS)


def _config(run: RunRow, source: ModelSource, address: str) -> EngineConfig:
    kept = run.settings
    scope, exclude = split_scope(run.scope)
    return EngineConfig(
        model_path=source.path,
        model_name=source.served_name,
        address=address,
        device=kept.get("device", "auto"),
        dtype=run.dtype,
        scope=scope,
        exclude=exclude,
        rounding=kept.get("rounding", "stochastic"),
        log_level="warning",
    )
