"""Many OpenAI requests on one gRPC stream: what is ready at the same time leaves as one message.

A message of gRPC costs more than the token in it. A decode step makes a token for each running request, and
all of them are ready together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, NoReturn, TypeAlias

import grpc

from seedbed.v1 import engine_pb2 as pb

__all__ = ["CallContext", "Handler", "answered"]

logger = logging.getLogger(__name__)


class _AbortedError(Exception):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code, self.details = code, details


class CallContext:
    """What the handler of one request finds in place of gRPC's context."""

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: Any = (),
    ) -> NoReturn:
        """Ends the call with a failure."""
        raise _AbortedError(code, details)


Handler: TypeAlias = Callable[[pb.OpenAIRequest, Any], AsyncGenerator[pb.OpenAIResponse, None]]
"""A servicer's `OpenAI`."""


async def answered(
    handler: Handler, messages: AsyncIterator[pb.OpenAICallsRequest]
) -> AsyncGenerator[pb.OpenAICallsResponse, None]:
    """The body of `OpenAICalls`: begins, answers and cancels calls until the caller ends the stream.

    Closing it early cancels the calls that run.
    """
    calls = _Calls(handler)
    listening = asyncio.create_task(calls.listen(messages))
    listening.add_done_callback(lambda _: calls.news.set())
    try:
        while calls.outbox or calls.running or not listening.done():
            await calls.news.wait()
            calls.news.clear()
            if calls.outbox:
                parts, calls.outbox = calls.outbox, []
                yield pb.OpenAICallsResponse(parts=parts)
    finally:
        listening.cancel()
        for task in calls.running.values():
            task.cancel()
        # Generations have stopped when this returns.
        await asyncio.gather(listening, *calls.running.values(), return_exceptions=True)


class _Calls:
    """The calls of one stream: those that run, and the parts that wait to be sent."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.running: dict[int, asyncio.Task[None]] = {}
        self.outbox: list[pb.OpenAIPart] = []
        self.news = asyncio.Event()

    async def listen(self, messages: AsyncIterator[pb.OpenAICallsRequest]) -> None:
        async for message in messages:
            for call in message.begun:
                task = self.running[call.id] = asyncio.create_task(self._answer(call))
                task.add_done_callback(partial(self._ended, call.id))
            for call_id in message.cancelled:
                if call_id in self.running:
                    self.running[call_id].cancel()

    async def _answer(self, call: pb.OpenAICall) -> None:
        try:
            async with aclosing(self._handler(call.request, CallContext())) as responses:
                async for response in responses:
                    self._send(pb.OpenAIPart(id=call.id, response=response))
        except _AbortedError as aborted:
            self._send(_failure(call.id, aborted.code, aborted.details))
        except Exception as error:
            logger.exception("a call failed")
            self._send(_failure(call.id, grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}"))

    def _send(self, part: pb.OpenAIPart) -> None:
        self.outbox.append(part)
        self.news.set()

    def _ended(self, call_id: int, _task: asyncio.Task[None]) -> None:
        self.running.pop(call_id, None)
        self.news.set()


def _failure(call_id: int, code: grpc.StatusCode, details: str) -> pb.OpenAIPart:
    return pb.OpenAIPart(id=call_id, failure=pb.OpenAIFailure(code=code.value[0], details=details))
