"""Calls to an engine's OpenAI routes that share one gRPC stream.

All that is asked, or answered, at the same time goes as one message: a message costs more than what is in it.
A stream that breaks fails the calls on it; the next call begins another one.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from seedbed.v1 import engine_pb2 as pb

if TYPE_CHECKING:
    from seedbed.v1.engine_pb2_grpc import EngineServiceAsyncStub

__all__ = ["Call", "EngineCalls"]

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Call:
    """One request on its way. Has to be cancelled when its answer is not read to the end."""

    def __init__(self, calls: EngineCalls, call_id: int, timeout: float) -> None:
        self._calls, self._id = calls, call_id
        self._parts: deque[pb.OpenAIResponse] = deque()
        self._news: asyncio.Future[None] | None = None
        self._ended = False
        self._error: grpc.aio.AioRpcError | None = None
        self._deadline = asyncio.get_running_loop().call_later(timeout, self._expire)

    async def read(self) -> pb.OpenAIResponse | None:
        """The next part; None after the tail. Raises AioRpcError for a call that failed, or took too long."""
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        return self._parts.popleft()

    def cancel(self) -> None:
        """Stops the generation, if it still goes on."""
        if not self._ended:
            self._end()
            self._calls._cancel(self._id)

    def _take(self, part: pb.OpenAIPart) -> None:
        if part.HasField("failure"):
            code = _CODES.get(part.failure.code, grpc.StatusCode.UNKNOWN)
            self._fail(_error(code, part.failure.details))
            return
        self._parts.append(part.response)
        if part.response.HasField("tail"):
            self._end()
        self._wake()

    def _fail(self, error: grpc.aio.AioRpcError) -> None:
        self._error = error
        self._end()
        self._wake()

    def _expire(self) -> None:
        self.cancel()
        self._fail(_error(grpc.StatusCode.DEADLINE_EXCEEDED, "the call took too long"))

    def _end(self) -> None:
        self._ended = True
        self._deadline.cancel()
        self._calls._running.pop(self._id, None)

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


class EngineCalls:
    """The calls to one engine."""

    def __init__(self, stub: EngineServiceAsyncStub) -> None:
        self._stub = stub
        self._ids = itertools.count(1)
        self._running: dict[int, Call] = {}
        self._begun: list[pb.OpenAICall] = []
        self._cancelled: list[int] = []
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def open(self, request: pb.OpenAIRequest, timeout: float) -> Call:
        """Sends a request; its answer has to be complete within `timeout` seconds."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="engine-calls")
        call_id = next(self._ids)
        call = self._running[call_id] = Call(self, call_id, timeout)
        self._begun.append(pb.OpenAICall(id=call_id, request=request))
        self._news.set()
        return call

    def close(self) -> None:
        """Fails the calls that run: the engine is given up."""
        if self._task is not None:
            self._task.cancel()
        self._lose(_error(grpc.StatusCode.UNAVAILABLE, "the engine was given up during the call"))

    def _cancel(self, call_id: int) -> None:
        waiting = next((call for call in self._begun if call.id == call_id), None)
        if waiting is not None:
            self._begun.remove(waiting)
        elif self._task is not None:
            self._cancelled.append(call_id)
            self._news.set()

    async def _run(self) -> None:
        stream = self._stub.OpenAICalls()
        sending = asyncio.create_task(self._send(stream))
        lost = _error(grpc.StatusCode.UNAVAILABLE, "the engine has ended the stream of its answers")
        try:
            while True:
                message = await stream.read()
                if not isinstance(message, pb.OpenAICallsResponse):
                    break
                for part in message.parts:
                    call = self._running.get(part.id)
                    if call is not None:
                        call._take(part)
        except grpc.aio.AioRpcError as error:
            lost = error
        except (grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            lost = _error(grpc.StatusCode.UNAVAILABLE, f"the channel to the engine is closed ({error})")
        finally:
            self._task = None
            sending.cancel()
            stream.cancel()
            self._lose(lost)

    async def _send(
        self, stream: grpc.aio.StreamStreamCall[pb.OpenAICallsRequest, pb.OpenAICallsResponse]
    ) -> None:
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                if self._begun or self._cancelled:
                    message = pb.OpenAICallsRequest(begun=self._begun, cancelled=self._cancelled)
                    self._begun, self._cancelled = [], []
                    await stream.write(message)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            # The reader hears of it as well, and says so to the calls.
            stream.cancel()

    def _lose(self, error: grpc.aio.AioRpcError) -> None:
        self._begun, self._cancelled = [], []
        for call in list(self._running.values()):
            call._fail(error)


def _error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)
