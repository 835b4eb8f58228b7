"""One completion on its way: the call to the engine, the ids on every piece, and the record of how it
ended.

It runs as a task of its own and writes a `Recording`; the request that asked for it, and retries of that
request, read from there. When nobody reads any more it is cancelled, and the engine stops.
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
from seedbed_server.gateway.conversations import extended
from seedbed_server.gateway.dialects import DIALECTS
from seedbed_server.gateway.errors import ApiError, bug, normalised, unavailable
from seedbed_server.gateway.labels import about, failure, label_headers
from seedbed_server.gateway.texts import digests_of
from seedbed_server.store import StoreError
from seedbed_server.store.rows import CompletionEnd

if TYPE_CHECKING:
    from seedbed_server.gateway.engine_calls import Call, EngineCalls
    from seedbed_server.gateway.lease_types import Lease, Wish
    from seedbed_server.gateway.request import Prepared
    from seedbed_server.gateway.retries import Recording
    from seedbed_server.gateway.state import Gateway

__all__ = ["Completion"]

log = structlog.get_logger(__name__)

CALL_SECONDS = 600.0
JSON, EVENTS = "application/json", "text/event-stream"


class Completion:
    """Made for one request; `run` is its whole life."""

    def __init__(
        self, gateway: Gateway, prepared: Prepared, wish: Wish, recording: Recording, started: float
    ) -> None:
        self._gateway = gateway
        self._prepared = prepared
        self._wish = wish
        self._recording = recording
        self._started = started
        self._dialect = DIALECTS[prepared.route]
        self._lease: Lease | None = None
        self._call: Call | None = None
        self._head = pb.OpenAIHead()
        self._tail: pb.OpenAITail | None = None
        self._heard: dict[int, dict[str, Any]] = {}
        self._ended = False
        self._answered = False

    async def run(self, engine: EngineCalls) -> None:
        """Asks the engine and records what comes, to the end or until it is cancelled."""
        recording = self._recording
        try:
            await self._start(engine)
            if self._head.status == 200 and self._prepared.stream:
                await self._stream()
            else:
                await self._collect()
        except asyncio.CancelledError:
            self._give_up("cancelled")
            recording.end("cancelled")
            raise
        except grpc.aio.AioRpcError as error:
            self._give_up("failed")
            recording.end("failed", failure(self._gateway.link, error))
        except (ApiError, StoreError) as error:
            self._give_up("failed")
            recording.end("failed", error)
        except Exception:
            log.exception("completion failed", completion=self._lease and self._lease.completion_id)
            self._give_up("failed")
            recording.end("failed", bug())
        finally:
            if self._call is not None:
                self._call.cancel()

    async def _start(self, engine: EngineCalls) -> None:
        """Takes the lease and asks the engine; returns once episode and completion are on disk."""
        prepared = self._prepared
        lease = self._lease = await self._gateway.leases.take(
            self._wish, prepared.route, self._dialect.prefix, prepared.choices
        )
        request = pb.OpenAIRequest(route=prepared.route, body=prepared.body)
        if lease.episode.seed is not None and lease.episode.sigma is not None:
            request.address.seed = lease.episode.seed
            request.address.sigma = lease.episode.sigma
        call = self._call = engine.open(request, CALL_SECONDS)
        part = await call.read()
        await lease.stored
        if part is None or not part.HasField("head"):
            raise unavailable("the engine answered without a head; try again", 5)
        self._head = part.head

    async def _collect(self) -> None:
        """The whole answer at once."""
        assert self._call is not None
        parts: list[bytes] = []
        while (part := await self._call.read()) is not None:
            if part.HasField("chunk"):
                parts.append(part.chunk)
            elif part.HasField("tail"):
                self._tail = part.tail
        status = self._head.status
        try:
            body = orjson.loads(b"".join(parts))
        except orjson.JSONDecodeError:
            body, status = b"".join(parts).decode(errors="replace")[:2000], max(status, 500)
        recording, lease = self._recording, self._known
        if status != 200:
            headers = {} if lease.is_new else label_headers(self._known, self._head.version)
            if status in (429, 503):
                headers["retry-after"] = "5"
            self._give_up("failed")
            recording.begin(status, headers, JSON)
            recording.add(orjson.dumps(normalised(status, body)))
            recording.end("failed")
            return
        self._dialect.listen(self._heard, body)
        body = self._dialect.marked(body, lease.completion_id, self._prepared.model, self._about())
        recording.episode_id = lease.episode.id
        recording.begin(200, label_headers(self._known, self._head.version), JSON)
        recording.add(orjson.dumps(body))
        self._first_byte()
        self._finish("finished")
        recording.end("finished")

    async def _stream(self) -> None:
        """Every event as it comes. From the end of the last choice on they wait for the engine's tail.

        Nothing is generated any more by then, and the event that ends an answer can say whether the version
        moved.
        """
        assert self._call is not None
        recording, dialect = self._recording, self._dialect
        recording.episode_id = self._known.episode.id
        recording.begin(200, label_headers(self._known, self._head.version), EVENTS)
        self._note_conversation()
        held: list[dict[str, Any] | bytes] = []
        unfinished = self._prepared.choices
        state, label = "finished", self._about()
        try:
            while (part := await self._call.read()) is not None:
                if part.HasField("tail"):
                    self._tail = part.tail
                    break
                event = _parse(part.chunk)
                if isinstance(event, dict):
                    if "error" in event and "choices" not in event and "type" not in event:
                        state = "failed"
                    else:
                        dialect.listen(self._heard, event)
                        unfinished -= dialect.finished(event)
                        event = self._marked(event, label)
                if unfinished > 0 and not held:
                    self._first_byte()
                    recording.add(self._sse(event))
                else:
                    held.append(event)
            label = self._about()
            for event in held:
                if isinstance(event, dict) and "seedbed" in event:
                    event = self._marked(event, label)
                recording.add(self._sse(event))
        except grpc.aio.AioRpcError as error:
            state = "failed"
            self._gateway.link.suspect()
            log.warning("stream broke", completion=self._known.completion_id, error=str(error)[:500])
            message = "the engine was lost in the middle of this answer; ask again"
            recording.add(self._sse(dialect.error(503, message, "engine_unavailable")))
        if self._tail is None:
            state = "failed"
        self._finish(state)
        recording.end("finished" if state == "finished" else "failed")

    @property
    def _known(self) -> Lease:
        assert self._lease is not None
        return self._lease

    def _marked(self, event: Any, about: dict[str, Any]) -> Any:
        return self._dialect.marked(event, self._known.completion_id, self._prepared.model, about)

    def _sse(self, event: dict[str, Any] | bytes) -> bytes:
        if isinstance(event, bytes):
            return event
        return self._dialect.named(event) + b"data: " + orjson.dumps(event) + b"\n\n"

    def _about(self) -> dict[str, Any]:
        return about(self._known, self._head.version, None if self._tail is None else self._tail.version)

    def _first_byte(self) -> None:
        if not self._answered:
            self._answered = True
            first_byte = self._gateway.metrics.first_byte.labels(self._prepared.route)
            first_byte.observe(time.monotonic() - self._started)

    def _give_up(self, status: str) -> None:
        """It came to nothing: an episode that it opened is given back, unless somebody has read of it."""
        if self._lease is None or self._ended:
            return
        self._finish(status)
        if self._recording.episode_id is None:
            self._gateway.leases.give_back(self._lease)

    def _finish(self, status: str) -> None:
        if self._ended or self._lease is None:
            return
        self._ended = True
        tail, gateway = self._tail, self._gateway
        end = CompletionEnd(status, time.time(), self._head.version if self._head.status else None)
        if status == "finished" and tail is not None:
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
                self._note_conversation(),
            )
        with contextlib.suppress(RuntimeError):
            gateway.leases.end(self._lease, end)

    def _note_conversation(self) -> bytes | None:
        """Remembers how far an implicit episode has got, so that its next request is found to be one."""
        episode, messages, text = self._known.episode, self._prepared.messages, self._prepared.text
        if episode.client is None:
            return None
        if text is not None:
            digests = digests_of(text, (said for (said,) in self._dialect.answers(self._heard)))
            self._gateway.texts.note(episode.client, episode.id, digests, time.time())
            return b"".join(digests) or None
        if not messages:
            return None
        asked = self._prepared.digests[-1]
        answered = []
        for items in self._dialect.answers(self._heard):
            digest = asked
            for item in items:
                digest = extended(digest, item)
            answered.append(digest)
        self._gateway.conversations.note(episode.client, episode.id, asked, answered, time.time())
        return b"".join([asked, *answered])


def _parse(chunk: bytes) -> dict[str, Any] | bytes:
    """The JSON object of a server-sent event; anything else (`[DONE]`, a comment) stays what it is."""
    _, found, data = chunk.partition(b"data:")
    if found and data.lstrip().startswith(b"{"):
        with contextlib.suppress(orjson.JSONDecodeError):
            event: dict[str, Any] = orjson.loads(data)
            return event
    return chunk
