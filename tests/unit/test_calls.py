"""Calls that share one gRPC stream: each has its own order, end, failure and cancellation."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from seedbed.v1 import engine_pb2 as pb
from seedbed.v1.engine_pb2_grpc import (
    EngineServiceServicer,
    EngineServiceStub,
    add_EngineServiceServicer_to_server,
)
from seedbed_server.engine import calls
from seedbed_server.gateway.engine_calls import Call, EngineCalls


class Servicer(EngineServiceServicer):
    """The body says what happens: a number is counted to, in steps that all calls take together."""

    def __init__(self) -> None:
        self.step = asyncio.Condition()
        self.running = 0
        self.messages: list[int] = []

    async def OpenAI(
        self, request: pb.OpenAIRequest, context: Any
    ) -> AsyncGenerator[pb.OpenAIResponse, None]:
        if request.body == b"refuse":
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much")
        self.running += 1
        try:
            yield pb.OpenAIResponse(head=pb.OpenAIHead(status=200))
            if request.body == b"break":
                raise RuntimeError("made up")
            for number in range(int(request.body)):
                async with self.step:
                    await self.step.wait()
                yield pb.OpenAIResponse(chunk=str(number).encode())
            yield pb.OpenAIResponse(tail=pb.OpenAITail(completion_tokens=int(request.body)))
        finally:
            self.running -= 1

    async def OpenAICalls(self, request_iterator: AsyncIterator[pb.OpenAICallsRequest], context: Any) -> None:
        async with aclosing(calls.answered(self.OpenAI, request_iterator)) as messages:
            async for message in messages:
                self.messages.append(len(message.parts))
                await context.write(message)

    async def tick(self) -> None:
        async with self.step:
            self.step.notify_all()

    async def until(self, running: int) -> None:
        async with asyncio.timeout(10):
            while self.running != running:
                await asyncio.sleep(0.005)


class Both:
    """A server and calls to it."""

    def __init__(self, address: str) -> None:
        self.address, self.servicer = address, Servicer()

    async def __aenter__(self) -> "Both":
        self.server = grpc.aio.server()
        add_EngineServiceServicer_to_server(self.servicer, self.server)
        self.server.add_insecure_port(self.address)
        await self.server.start()
        self.channel = grpc.aio.insecure_channel(self.address)
        self.calls = EngineCalls(EngineServiceStub(self.channel))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.calls.close()
        await self.channel.close()
        await self.server.stop(None)

    def open(self, body: str, timeout: float = 20.0) -> Call:
        return self.calls.open(pb.OpenAIRequest(body=body.encode()), timeout)


@pytest_asyncio.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    async with Both(f"unix:{tmp_path}/it.sock") as it:
        yield it


async def everything(call: Call) -> list[pb.OpenAIResponse]:
    found = []
    while (part := await call.read()) is not None:
        found.append(part)
    return found


async def test_each_call_has_all_its_parts_in_order(both: Both) -> None:
    reading = [asyncio.ensure_future(everything(both.open(str(n)))) for n in (0, 3, 5)]
    async with asyncio.timeout(10):
        while not all(task.done() for task in reading):
            await both.servicer.tick()
            await asyncio.sleep(0.002)
    for n, task in zip((0, 3, 5), reading, strict=True):
        head, *chunks, tail = task.result()
        assert head.head.status == 200
        assert [part.chunk for part in chunks] == [str(i).encode() for i in range(n)]
        assert tail.tail.completion_tokens == n


async def test_what_is_ready_together_is_one_message(both: Both) -> None:
    opened = [both.open("1") for _ in range(16)]
    for call in opened:
        part = await call.read()
        assert part is not None
        assert part.HasField("head")
    await both.servicer.until(16)
    both.servicer.messages.clear()
    await both.servicer.tick()
    for call in opened:
        assert len(await everything(call)) == 2
    # A chunk and a tail of each; never a message for every part.
    assert sum(both.servicer.messages) == 32
    assert len(both.servicer.messages) <= 4


async def test_a_cancelled_call_stops_and_the_others_go_on(both: Both) -> None:
    one, other = both.open("2"), both.open("2")
    await one.read()
    await other.read()
    one.cancel()
    one.cancel()
    await both.servicer.until(1)
    for _ in range(2):
        await both.servicer.tick()
        part = await other.read()
        assert part is not None
        assert part.HasField("chunk")
    assert len(await everything(other)) == 1


async def test_a_call_that_is_cancelled_before_it_was_sent_never_begins(both: Both) -> None:
    both.open("refuse").cancel()
    later = both.open("0")
    assert len(await everything(later)) == 2
    assert both.servicer.running == 0


@pytest.mark.parametrize(
    ("body", "code", "details"),
    [
        ("refuse", grpc.StatusCode.RESOURCE_EXHAUSTED, "too much"),
        ("break", grpc.StatusCode.UNKNOWN, "RuntimeError: made up"),
    ],
)
async def test_a_failure_is_that_of_its_call_alone(
    both: Both, body: str, code: grpc.StatusCode, details: str
) -> None:
    failing, fine = both.open(body), both.open("0")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await everything(failing)
    assert (caught.value.code(), caught.value.details()) == (code, details)
    assert len(await everything(fine)) == 2


async def test_a_call_that_takes_too_long_is_stopped(both: Both) -> None:
    call = both.open("1", timeout=0.2)
    await call.read()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await both.servicer.until(0)


async def test_a_server_that_goes_fails_its_calls_and_the_next_one_serves_again(both: Both) -> None:
    call = both.open("1")
    await call.read()
    await both.server.stop(None)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is not grpc.StatusCode.OK
    await both.servicer.until(0)
    both.server = grpc.aio.server()
    add_EngineServiceServicer_to_server(both.servicer, both.server)
    both.server.add_insecure_port(both.address)
    await both.server.start()
    async with asyncio.timeout(10):
        while True:
            try:
                assert len(await everything(both.open("0"))) == 2
                break
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.05)


async def test_closing_stops_what_runs(both: Both) -> None:
    call = both.open("1")
    await call.read()
    both.calls.close()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    await both.servicer.until(0)
