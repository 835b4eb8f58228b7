"""The OpenAI routes: leases, names and ids around SGLang's own handlers."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Path, Request, Response

from seedbed_server.gateway.answers import ChatAnswer, ResponseAnswer, TextAnswer
from seedbed_server.gateway.association import identify
from seedbed_server.gateway.bodies import ClientGone, read_body
from seedbed_server.gateway.completion import EVENTS, Completion
from seedbed_server.gateway.document import EVENT_STREAM, answers, body
from seedbed_server.gateway.errors import ApiError
from seedbed_server.gateway.lease_types import Wish, has_ended
from seedbed_server.gateway.reader import Reader
from seedbed_server.gateway.request import CHAT, COMPLETIONS, RESPONSES, Prepared, prepare
from seedbed_server.gateway.response_shapes import ResponseBody
from seedbed_server.gateway.retries import Recording, is_retry, key_of
from seedbed_server.gateway.shapes import ChatBody, CompletionBody
from seedbed_server.gateway.state import Gateway, gateway_of

if TYPE_CHECKING:
    from pydantic import BaseModel
    from starlette.types import Receive, Scope, Send

    from seedbed_server.gateway.association import Identity
    from seedbed_server.store.rows import EpisodeRow

__all__ = ["router"]

MAX_BODY = 16 << 20

BELOW = "/v1/episodes/{id}"
ERRORS = (400, 401, 404, 408, 409, 413, 429, 500, 503, 504)

router = APIRouter()


def _answers(shape: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    return answers(shape, *ERRORS, content=EVENT_STREAM)


@router.post(CHAT, responses=_answers(ChatAnswer), openapi_extra=body(ChatBody))
async def chat_completions(request: Request) -> Response:
    """Answers with the episode's member, or with the live model for `<name>:live`."""
    return await complete(request, CHAT)


@router.post(COMPLETIONS, responses=_answers(TextAnswer), openapi_extra=body(CompletionBody))
async def text_completions(request: Request) -> Response:
    """Continues a text."""
    return await complete(request, COMPLETIONS)


@router.post(RESPONSES, responses=_answers(ResponseAnswer), openapi_extra=body(ResponseBody))
async def responses(request: Request) -> Response:
    """Answers in the shape of the Responses API; nothing is kept to be asked for later."""
    return await complete(request, RESPONSES)


@router.post(BELOW + CHAT, responses=_answers(ChatAnswer), openapi_extra=body(ChatBody, within=True))
async def episode_chat_completions(request: Request, id: str = Path()) -> Response:  # noqa: A002
    """The same, below the base URL of an episode."""
    return await complete(request, CHAT, id)


@router.post(
    BELOW + COMPLETIONS, responses=_answers(TextAnswer), openapi_extra=body(CompletionBody, within=True)
)
async def episode_text_completions(request: Request, id: str = Path()) -> Response:  # noqa: A002
    """The same, below the base URL of an episode."""
    return await complete(request, COMPLETIONS, id)


@router.post(
    BELOW + RESPONSES, responses=_answers(ResponseAnswer), openapi_extra=body(ResponseBody, within=True)
)
async def episode_responses(request: Request, id: str = Path()) -> Response:  # noqa: A002
    """The same, below the base URL of an episode."""
    return await complete(request, RESPONSES, id)


async def complete(request: Request, route: str, in_path: str | None = None) -> Response:
    """One OpenAI request, from its body to the last byte of its answer."""
    gateway = gateway_of(request)
    started = time.monotonic()
    status = 500
    response: Response | None = None
    entered = False
    try:
        gateway.enter()
        entered = True
        engine = gateway.link.calls
        assert gateway.model is not None
        data = await read_body(request, MAX_BODY)
        prepared = prepare(route, data, request.headers, gateway.model)
        identity = await identify(request.headers, in_path, prepared.named, gateway.leases.cache)
        _check_session(identity)
        key = key_of(route, data, identity.episode_id, identity.client)
        again = gateway.retries.find(key) if is_retry(request.headers) else None
        how = _how(gateway, again)
        if again is None or how is None:
            wish = await _wish(gateway, prepared, identity, again)
            again = Recording(key)
            gateway.retries.add(again)
            completion = Completion(gateway, prepared, wish, again, started)
            again.task = asyncio.create_task(completion.run(engine), name="completion")
            again.task.add_done_callback(partial(_settle, gateway, again))
        response = await _answer(request, gateway, again, how, route, started)
        status = response.status_code
        return response
    except ApiError as error:
        status = error.status
        raise
    except ClientGone:
        status = 499
        return Response(status_code=499)
    finally:
        gateway.metrics.requests.labels(route, status).inc()
        if entered and not isinstance(response, _Stream):
            gateway.leave(route, started)


def _settle(gateway: Gateway, recording: Recording, _task: asyncio.Task[None]) -> None:
    gateway.retries.settle(recording)


def _check_session(identity: Identity) -> None:
    """A session key ends with its episode."""
    if identity.session is not None and has_ended(identity.session, time.time()):
        raise ApiError(
            401,
            f"authorization: the episode {identity.session.id} of this session key has ended; open "
            "another one",
            param="authorization",
            code="session_ended",
        )


def _how(gateway: Gateway, again: Recording | None) -> str | None:
    """What a retry gets of its original; None if it has to be asked anew."""
    if again is None:
        return None
    if again.state == "cancelled":
        gateway.retries.take(again)
        gateway.metrics.retries.labels("repeated").inc()
        return None
    how = "joined" if again.state == "running" else "replayed"
    again.joined += 1
    gateway.metrics.retries.labels(how).inc()
    return how


async def _wish(
    gateway: Gateway, prepared: Prepared, identity: Identity, cancelled: Recording | None
) -> Wish:
    """Which episode is meant: one that is named, that of a retry, that of the conversation, or a new one."""
    leases, live, group = gateway.leases, prepared.live, prepared.group
    metadata = prepared.metadata
    if identity.episode_id is not None:
        return Wish(live, identity.episode_id, group, metadata=metadata)
    found = None if cancelled is None else cancelled.episode_id
    if found is None:
        found = gateway.continued(identity.client, prepared)
    if found is not None:
        episode = await leases.cache.by_id(found)
        if episode is not None and _fits(episode, live=live, group=group):
            leases.counts.continued += 1
            gateway.metrics.implicit.labels("continued").inc()
            return Wish(live, found, group, metadata=metadata)
    gateway.metrics.implicit.labels("opened").inc()
    return Wish(live, None, group, client=identity.client, metadata=metadata)


def _fits(episode: EpisodeRow, *, live: bool, group: str | None) -> bool:
    """Whether a request that did not name this episode could have."""
    ended = has_ended(episode, time.time())
    return not ended and not (live and episode.member is not None) and group in (None, episode.group)


async def _answer(
    request: Request, gateway: Gateway, recording: Recording, how: str | None, route: str, started: float
) -> Response:
    """Waits for the beginning of an answer, no longer than its client does."""
    reader = Reader(recording, request)
    streams = False
    try:
        await reader.begun()
        headers = recording.headers if how is None else {**recording.headers, "x-seedbed-retry": how}
        if recording.media_type == EVENTS:
            streams = True
            return _Stream(gateway, reader, headers, route, started)
        recording.delivered = True
        return Response(recording.body, recording.status, headers, recording.media_type)
    finally:
        if not streams:
            reader.close()


class _Stream(Response):
    """Server-sent events; when it ends, however it ends, it reads no more."""

    def __init__(
        self, gateway: Gateway, reader: Reader, headers: dict[str, str], route: str, started: float
    ) -> None:
        super().__init__(
            None, 200, {"cache-control": "no-cache", "x-accel-buffering": "no", **headers}, EVENTS
        )
        # How long it will be is not known.
        del self.headers["content-length"]
        self._gateway, self._reader = gateway, reader
        self._route, self._started = route, started

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Sends it."""
        try:
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            async for piece in self._reader.read():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._reader.close()
            self._gateway.leave(self._route, self._started)
