"""The link to the engine: starts its process, accounts for its weights, beats its heart, starts it again.

starting -> ready -> down -> starting ... An engine is ready only when its version and digest are those of the
store: a fresh one is given a snapshot or the base first, and the journal from there. Anything else (another
model than the store's, a digest that differs, a term that another gateway has overtaken) is fatal: the link
stays down and says why.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

import grpc
import grpc.aio
import structlog

from seedbed.v1 import engine_pb2 as pb
from seedbed.v1.engine_pb2_grpc import EngineServiceStub
from seedbed_server.gateway.engine_calls import EngineCalls
from seedbed_server.gateway.errors import unavailable
from seedbed_server.gateway.link_types import (
    CALL_SECONDS,
    HEARTBEAT_SECONDS,
    RESTORE_SECONDS,
    Child,
    ClaimFunction,
    LinkError,
    LinkState,
    connect,
)
from seedbed_server.gateway.start_times import StartTimes
from seedbed_server.store import StoreMismatch

__all__ = ["EngineLink"]

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from seedbed.v1.engine_pb2_grpc import EngineServiceAsyncStub

T = TypeVar("T")

log = structlog.get_logger(__name__)

SILENCE_SECONDS = 120.0
_BACKOFF = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
# What an engine answers when it does not believe that this gateway, or these weights, are the right ones.
_FATAL = {grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.DATA_LOSS}


class _Detour(Exception):
    """The snapshot that the weights were to come from was set aside; a fresh engine takes another way."""


class EngineLink:
    """Owns the engine's process and the channel to it."""

    def __init__(
        self, make_child: Callable[[], Child], claim: ClaimFunction, *, start_seconds: float = 600.0
    ) -> None:
        self.state: LinkState = "starting"
        self.loaded: pb.DescribeResponse | None = None
        self.problem: str | None = None
        self.term = 0
        self._make_child = make_child
        self._claim = claim
        self._start_seconds = start_seconds
        self._child: Child | None = None
        self._starting: asyncio.Future[None] | None = None
        self._channel: grpc.aio.Channel | None = None
        self._stub: EngineServiceAsyncStub | None = None
        self._calls: EngineCalls | None = None
        self._changed = asyncio.Condition()
        self._suspected = asyncio.Event()
        self._condemned: str | None = None
        self._failed = False
        self._starts = StartTimes()
        self._pause = 0.0

    @property
    def failed(self) -> bool:
        """Whether the link is down for good; `problem` says why."""
        return self._failed

    @property
    def ready(self) -> EngineServiceAsyncStub:
        """The engine's stub, if it may serve. Raises ApiError
        503 with Retry-After otherwise.
        """
        if self.state == "ready" and self._stub is not None:
            return self._stub
        if self._failed:
            raise unavailable(f"the engine does not serve: {self.problem}", 120)
        seconds = self.seconds_left
        raise unavailable(f"the engine is {self.state}; try again in {seconds} s", seconds)

    @property
    def seconds_left(self) -> int:
        """Until an engine may serve, judged by the last start; 1 to 120."""
        return self._starts.seconds_left(self._pause)

    @property
    def calls(self) -> EngineCalls:
        """Where OpenAI requests go, if the engine may serve. Raises ApiError like `ready`."""
        stub = self.ready
        if self._calls is None:
            self._calls = EngineCalls(stub)
        return self._calls

    async def wait_ready(self, timeout: float) -> EngineServiceAsyncStub:
        """The engine as soon as it may serve. Raises ApiError 503 after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(lambda: self.state == "ready" or self._failed)
        except TimeoutError:
            pass
        return self.ready

    async def wait_settled(self) -> None:
        """Returns when the first start has ended: ready, or failed for good. The start itself is bounded."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.state == "ready" or self._failed)

    def suspect(self) -> None:
        """A call failed as if the engine were gone: look at once."""
        self._suspected.set()

    def condemn(self, reason: str) -> None:
        """The engine does not do what it must: end it and start another."""
        self._condemned = reason
        self.state, self.problem, self._stub = "down", reason, None
        self._suspected.set()

    async def run(self) -> None:
        """Keeps an engine until it is cancelled, or until there is no way to serve this store."""
        attempts = 0
        try:
            while not self._failed:
                try:
                    await self._bring_up()
                    attempts = 0
                    reason = await self._watch()
                    log.warning("engine lost", reason=reason)
                    await self._become("down", reason)
                except (StoreMismatch, LinkError) as error:
                    await self._fail(str(error))
                except _Detour as detour:
                    log.warning("another way to the weights", reason=str(detour))
                    await self._become("down", str(detour))
                except Exception as error:  # noqa: BLE001
                    log.warning("engine not usable", error=str(error), attempt=attempts + 1)
                    if self.loaded is None:
                        await self._fail(str(error))
                    else:
                        await self._become("down", str(error))
                finally:
                    await self._tear_down()
                if not self._failed:
                    self._pause = _BACKOFF[min(attempts, len(_BACKOFF) - 1)]
                    await asyncio.sleep(self._pause)
                    attempts += 1
                    await self._become("starting", self.problem)
        finally:
            await self._become("down", self.problem)

    async def _bring_up(self) -> None:
        self._condemned = None
        self._suspected.clear()
        child = self._child = self._make_child()
        started = time.monotonic()
        self._starts.begin(started)
        self._starting = asyncio.ensure_future(asyncio.to_thread(child.start, self._start_seconds))
        await asyncio.shield(self._starting)
        self._channel = connect(child.address)
        stub = EngineServiceStub(self._channel)
        loaded = await stub.Describe(
            pb.DescribeRequest(parameters=True), timeout=CALL_SECONDS, wait_for_ready=True
        )
        claim = await self._claim(loaded)
        self.term, way = claim.term, claim.way
        try:
            described = await stub.Describe(pb.DescribeRequest(term=claim.term), timeout=CALL_SECONDS)
            state = described.state
            if (state.version, state.digest) != (way.version, way.digest):
                log.info("restoring", version=way.version, snapshot=way.folder, records=len(way.records))
                call = stub.Restore(way.request(claim.term), timeout=RESTORE_SECONDS)
                state = (await self._beating(stub, call)).state
        except grpc.aio.AioRpcError as error:
            if error.code() in _FATAL:
                if way.folder and not await claim.recheck():
                    raise _Detour(f"the snapshot {way.folder} is damaged ({error.details()})") from None
                raise LinkError(
                    f"the engine refuses the journal ({error.details()}); check that the base model "
                    "and the store belong together"
                ) from None
            raise
        if (state.version, state.digest) != (way.version, way.digest):
            raise LinkError(
                f"the weights that the journal makes have the digest {state.digest.hex()} at version "
                f"{state.version}, and the store says {way.digest.hex()} at version {way.version}; "
                "nothing is served. Restore the store or the model from a backup"
            )
        self.loaded, self._stub = loaded, stub
        self._starts.end(ready=True)
        log.info("engine ready", version=state.version, seconds=round(time.monotonic() - started, 1))
        await self._become("ready", None)

    async def _beating(self, stub: EngineServiceAsyncStub, call: Awaitable[T]) -> T:
        """Awaits a long call and lets the engine hear its gateway meanwhile."""
        beat = asyncio.ensure_future(self._heartbeat(stub))
        try:
            return await call
        finally:
            beat.cancel()

    async def _watch(self) -> str:
        """Returns the reason when the engine is lost."""
        assert self._stub is not None
        beat = asyncio.ensure_future(self._heartbeat(self._stub))
        try:
            while True:
                if self._condemned is not None:
                    return self._condemned
                if self._child is None or not self._child.alive:
                    return "the engine process ended"
                if beat.done():
                    return beat.result()
                try:
                    async with asyncio.timeout(0.5):
                        await self._suspected.wait()
                    self._suspected.clear()
                    # A dying process closes its socket before it can be waited for.
                    await asyncio.sleep(0.05)
                except TimeoutError:
                    pass
        finally:
            beat.cancel()

    async def _heartbeat(self, stub: EngineServiceAsyncStub) -> str:
        """Returns the reason when the engine no longer answers. Raises LinkError when it is another's now."""
        heard = time.monotonic()
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                await stub.Describe(pb.DescribeRequest(term=self.term), timeout=CALL_SECONDS)
                heard = time.monotonic()
            except grpc.aio.AioRpcError as error:
                if error.code() in _FATAL:
                    raise LinkError(
                        f"the engine does not accept this gateway any more ({error.details()}); "
                        "another one may have taken it over. Stop one of the two"
                    ) from None
                silent = time.monotonic() - heard
                if silent > SILENCE_SECONDS:
                    return f"the engine has not answered for {silent:.0f} s"

    async def _tear_down(self) -> None:
        self._stub = None
        self._starts.end(ready=False)
        calls, self._calls = self._calls, None
        if calls is not None:
            calls.close()
        channel, self._channel = self._channel, None
        child, self._child = self._child, None
        if channel is not None:
            await channel.close(grace=None)
        if child is not None:
            await asyncio.shield(self._end(child))

    async def _end(self, child: Child) -> None:
        await asyncio.to_thread(child.stop)
        starting, self._starting = self._starting, None
        if starting is not None and not starting.done():
            # It was told to stop while it started: whatever its thread still makes has to go as well.
            await asyncio.wait((starting,), timeout=self._start_seconds)
            await asyncio.to_thread(child.stop)
        if starting is not None and starting.done() and not starting.cancelled():
            starting.exception()

    async def _fail(self, problem: str) -> None:
        log.error("engine does not serve", problem=problem)
        self._failed = True
        await self._become("down", problem)

    async def _become(self, state: LinkState, problem: str | None) -> None:
        self.state, self.problem = state, problem
        async with self._changed:
            self._changed.notify_all()
