"""Clients that take the time: over HTTP as agents do, and straight to our engine. No SDK, no pauses."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import aiohttp
import grpc.aio

from seedbed.v1 import engine_pb2 as pb
from seedbed.v1.engine_pb2_grpc import EngineServiceStub
from seedbed_server.gateway.engine_calls import EngineCalls

__all__ = ["EngineLane", "HttpLane", "Lane", "Timing", "load"]

_SECONDS = 300.0
_ROUTE = "/v1/chat/completions"
# Less than the 5 s after which servers close a connection that is still.
_KEPT_SECONDS = 4.0


@dataclass(frozen=True)
class Timing:
    """One completion.

    Attributes:
        first: seconds to the first token; for an answer that is not streamed, to its end.
        total: seconds to the end.
        tokens: new tokens.
    """

    first: float
    total: float
    tokens: int


class Lane(Protocol):
    """A way to a model."""

    async def warm(self, clients: int) -> None:
        """Opens the connections of so many clients."""
        ...

    async def ask(self, prompt: str, new_tokens: int, *, stream: bool) -> Timing:
        """One completion. Raises RuntimeError for an answer that is not what was asked for."""
        ...

    async def close(self) -> None:
        """Lets the connections go."""
        ...


class HttpLane:
    """An OpenAI endpoint, over connections that stay open through a turn."""

    def __init__(self, url: str, model: str) -> None:
        self._model = model
        self._session = aiohttp.ClientSession(
            url,
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_SECONDS),
            timeout=aiohttp.ClientTimeout(total=_SECONDS),
        )

    async def warm(self, clients: int) -> None:
        async def one() -> None:
            async with self._session.get("/v1/models") as response:
                await response.read()

        await asyncio.gather(*(one() for _ in range(clients)))

    async def ask(self, prompt: str, new_tokens: int, *, stream: bool) -> Timing:
        body = _body(self._model, prompt, new_tokens, stream=stream)
        started = time.perf_counter()
        headers = {"content-type": "application/json"}
        async with self._session.post(_ROUTE, data=body, headers=headers) as response:
            if response.status != 200:
                raise RuntimeError(f"{response.url}: {response.status}: {(await response.text())[:500]}")
            return await _timing(response.content, started, new_tokens, stream=stream)

    async def close(self) -> None:
        await self._session.close()


class EngineLane:
    """The engine by itself, as the gateway calls it: what the gateway adds is the difference."""

    def __init__(self, address: str, model: str) -> None:
        self._model = model
        self._channel = grpc.aio.insecure_channel(address)
        self._calls = EngineCalls(EngineServiceStub(self._channel))

    async def warm(self, clients: int) -> None:  # noqa: ARG002
        await self._channel.channel_ready()

    async def ask(self, prompt: str, new_tokens: int, *, stream: bool) -> Timing:
        body = _body(self._model, prompt, new_tokens, stream=stream)
        started = time.perf_counter()
        call = self._calls.open(pb.OpenAIRequest(route=_ROUTE, body=body), _SECONDS)

        async def chunks() -> AsyncIterator[bytes]:
            while (part := await call.read()) is not None:
                if part.HasField("chunk"):
                    yield part.chunk

        return await _timing(chunks(), started, new_tokens, stream=stream)

    async def close(self) -> None:
        self._calls.close()
        await self._channel.close()


async def load(
    lane: Lane, prompts: Sequence[Sequence[str]], *, new_tokens: int, stream: bool
) -> tuple[float, list[Timing]]:
    """One client for each list of prompts, which it asks one after another.

    Returns the seconds from the start of all to the end of the last, and every completion.
    """

    async def client(own: Sequence[str]) -> list[Timing]:
        return [await lane.ask(prompt, new_tokens, stream=stream) for prompt in own]

    await lane.warm(len(prompts))
    started = time.perf_counter()
    timings = await asyncio.gather(*(client(own) for own in prompts))
    return time.perf_counter() - started, [timing for own in timings for timing in own]


def _body(model: str, prompt: str, new_tokens: int, *, stream: bool) -> bytes:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": new_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    return json.dumps(body).encode()


async def _timing(lines: AsyncIterable[bytes], started: float, new_tokens: int, *, stream: bool) -> Timing:
    """Reads an answer: lines of HTTP, or whole events."""
    first, usage = 0.0, None
    whole = b""
    async for line in lines:
        if not stream:
            whole += line
            continue
        # Parsing every event would load the clients' core more than the server's.
        if not first and b'"content":"' in line and b'"content":""' not in line:
            first = time.perf_counter() - started
        if b'"usage":{' in line:
            usage = json.loads(line[line.index(b"{") :])["usage"]
    total = time.perf_counter() - started
    if not stream:
        usage = json.loads(whole)["usage"]
    if usage is None or usage["completion_tokens"] != new_tokens:
        raise RuntimeError(f"{new_tokens} tokens were asked for, and the usage is {usage}")
    return Timing(first or total, total, usage["completion_tokens"])
