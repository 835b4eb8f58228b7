"""One completion on its way: the call to the engine, the ids on every piece, and the record of how it
ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import grpc.aio
import orjson
import structlog

from seedbed.v1 import engine_pb2 as pb
from seedbed_server.gateway.errors import error_body, normalised, unavailable
from seedbed_server.store.rows import CompletionEnd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from seedbed.v1.engine_pb2_grpc import EngineServiceAsyncStub
    from seedbed_server.gateway.leases import Lease
    from seedbed_server.gateway.request import Prepared
    from seedbed_server.gateway.state import Gateway

__all__ = ["Completion"]

log = structlog.get_logger(__name__)

CALL_SECONDS = 600.0
FINISH_SECONDS = 10.0


class Completion:
    """Made for one request; `start`, then `collect` or `stream`, or `abandon`."""

    def __init__(self, gateway: Gateway, prepared: Prepared, route: str, started: float) -> None:
        self.gateway = gateway
        self._prepared = prepared
        self._route = route
        self.started = started
        self._lease: Lease | None = None
        self._call: Any = None
        self._head = pb.OpenAIHead()
        self._ended = False
        self._answered = False
        self._outcome = "cancelled"
        self._tail: pb.OpenAITail | None = None

    async def start(self, engine: EngineServiceAsyncStub) -> pb.OpenAIHead:
        """Takes the lease and asks the engine; returns its head once episode and completion are on disk.

        Raises ApiError, StoreError, or AioRpcError when the engine cannot be asked.
        """
        lease = self._lease = await self.gateway.leases.take(self._prepared.wish, self._route)
        request = pb.OpenAIRequest(route=self._route, body=self._prepared.body)
        if lease.episode.seed is not None and lease.episode.sigma is not None:
            request.address.seed = lease.episode.seed
            request.address.sigma = lease.episode.sigma
        self._call = engine.OpenAI(request, timeout=CALL_SECONDS)
        part, _ = await asyncio.gather(self._call.read(), lease.stored)
        if part is grpc.aio.EOF or part.WhichOneof("part") != "head":
            raise unavailable("the engine answered without a head; try again", 5)
        self._head = part.head
        return self._head

    async def collect(self) -> tuple[int, dict[str, Any], dict[str, str]]:
        """The whole answer: status, body and headers."""
        parts: list[bytes] = []
        tail: pb.OpenAITail | None = None
        while (part := await self._call.read()) is not grpc.aio.EOF:
            if part.WhichOneof("part") == "chunk":
                parts.append(part.chunk)
            elif part.WhichOneof("part") == "tail":
                tail = part.tail
        status = self._head.status
        try:
            body = orjson.loads(b"".join(parts))
        except orjson.JSONDecodeError:
            body, status = b"".join(parts).decode(errors="replace")[:2000], max(status, 500)
        if status != 200:
            return status, normalised(status, body), self._refused(status)
        body |= {"id": self._lease_id(), "model": self._prepared.model, "seedbed": self._about(tail)}
        self._finish("finished", tail)
        self._first_byte()
        return 200, body, self.headers()

    async def stream(self) -> AsyncIterator[bytes]:
        """Every event as it comes. From the end of the last choice on they wait for the engine's tail.

        Nothing is generated any more by then, and the event that ends an answer can say whether the version
        moved.
        """
        held: list[dict[str, Any] | bytes] = []
        unfinished = self._prepared.choices
        try:
            while (part := await self._call.read()) is not grpc.aio.EOF:
                if part.WhichOneof("part") == "tail":
                    self._tail = part.tail
                    break
                event = _parse(part.chunk)
                if isinstance(event, dict):
                    event = self._marked(event)
                    unfinished -= _finished(event)
                if unfinished > 0 and not held:
                    self._first_byte()
                    yield _sse(event)
                else:
                    held.append(event)
            about = self._about(self._tail)
            self._outcome = "failed" if self._tail is None else "finished"
            for event in held:
                if isinstance(event, dict) and "seedbed" in event:
                    event["seedbed"] = about
                yield _sse(event)
        except grpc.aio.AioRpcError as error:
            self._outcome = "failed"
            self.gateway.link.suspect()
            log.warning("stream broke", completion=self._lease_id(), error=error.details())
            message = "the engine was lost in the middle of this answer; ask again"
            yield _sse(error_body(503, message, code="engine_unavailable"))

    def close_stream(self) -> None:
        """The answer has ended or the client has gone, whether `stream` was begun or not."""
        self._finish(self._outcome, self._tail)
        self._call.cancel()

    def abandon(self, status: str) -> None:
        """It came to nothing: the call is cancelled, and an episode that it opened is given back."""
        if self._call is not None:
            self._call.cancel()
        if self._lease is not None and not self._ended:
            self._finish(status, None)
            self.gateway.leases.give_back(self._lease)

    def headers(self) -> dict[str, str]:
        """Episode, completion, version, member and seed, for clients that read no bodies."""
        assert self._lease is not None
        episode = self._lease.episode
        values = {
            "x-seedbed-episode": episode.id,
            "x-seedbed-completion": self._lease.completion_id,
            "x-seedbed-version": self._head.version,
            "x-seedbed-member": episode.member,
            "x-seedbed-seed": episode.seed,
        }
        return {name: str(value) for name, value in values.items() if value is not None}

    def _about(self, tail: pb.OpenAITail | None = None) -> dict[str, Any]:
        assert self._lease is not None
        episode = self._lease.episode
        about: dict[str, Any] = {
            "episode_id": episode.id,
            "completion_id": self._lease.completion_id,
            "version": self._head.version,
            "population": episode.population,
            "member": episode.member,
            # A text: JavaScript's numbers end at 2^53.
            "seed": None if episode.seed is None else str(episode.seed),
            "sigma": None if episode.sigma is None else abs(episode.sigma),
            "sign": None if episode.sigma is None else (1 if episode.sigma > 0 else -1),
        }
        if tail is not None and tail.version != self._head.version:
            about["last_version"] = tail.version
        return about

    def _marked(self, event: dict[str, Any]) -> dict[str, Any]:
        if "error" in event:
            return normalised(500, event)
        return event | {"id": self._lease_id(), "model": self._prepared.model, "seedbed": self._about()}

    def _lease_id(self) -> str:
        assert self._lease is not None
        return self._lease.completion_id

    def _refused(self, status: int) -> dict[str, str]:
        """Ends a completion that the engine answered with an error; returns the headers for it."""
        assert self._lease is not None
        headers = {} if self._lease.is_new else self.headers()
        if status in (429, 503):
            headers["retry-after"] = "5"
        self.abandon("failed")
        return headers

    def _first_byte(self) -> None:
        if not self._answered:
            self._answered = True
            self.gateway.metrics.first_byte.labels(self._route).observe(time.monotonic() - self.started)

    def _finish(self, status: str, tail: pb.OpenAITail | None) -> None:
        if self._ended or self._lease is None:
            return
        self._ended = True
        end = CompletionEnd(status, time.time(), self._head.version if self._head.status else None)
        if tail is not None:
            gateway = self.gateway
            gateway.prompt_tokens += tail.prompt_tokens
            gateway.completion_tokens += tail.completion_tokens
            gateway.metrics.tokens.labels("prompt").inc(tail.prompt_tokens)
            gateway.metrics.tokens.labels("completion").inc(tail.completion_tokens)
            end = CompletionEnd(
                status,
                time.time(),
                self._head.version,
                tail.version,
                tail.prompt_tokens,
                tail.completion_tokens,
                tail.cached_tokens,
                ",".join(tail.finish_reasons),
            )
        with contextlib.suppress(RuntimeError):
            self.gateway.leases.end(self._lease, end)


def _parse(chunk: bytes) -> dict[str, Any] | bytes:
    """The JSON object of a server-sent event; anything else (`[DONE]`, a comment) stays what it is."""
    if chunk.startswith(b"data:"):
        data = chunk[5:].strip()
        if data.startswith(b"{"):
            with contextlib.suppress(orjson.JSONDecodeError):
                event: dict[str, Any] = orjson.loads(data)
                return event
    return chunk


def _finished(event: dict[str, Any]) -> int:
    choices = event.get("choices") or []
    return sum(choice.get("finish_reason") is not None for choice in choices if isinstance(choice, dict))


def _sse(event: dict[str, Any] | bytes) -> bytes:
    return event if isinstance(event, bytes) else b"data: " + orjson.dumps(event) + b"\n\n"
