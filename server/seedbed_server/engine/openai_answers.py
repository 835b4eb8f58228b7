"""What SGLang's handlers answer, as a head and chunks: completions of both kinds, and responses."""

from __future__ import annotations

import inspect
import logging
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import orjson

from seedbed_server.engine.openai_bodies import (
    AbortedError,
    Tally,
    clean_completion,
    clean_event,
    clean_response,
    error_body,
)

__all__ = ["Chunk", "Head", "completions", "failed", "responses"]

logger = logging.getLogger(__name__)

# A response begins with these two before SGLang has looked at its prompt.
_OPENING = ("response.created", "response.in_progress")


@dataclass(frozen=True)
class Head:
    """Status and content type of an answer; comes first."""

    status: int
    content_type: str


@dataclass(frozen=True)
class Chunk:
    """Bytes of the body: a whole JSON object, or one server-sent event."""

    data: bytes


async def completions(
    handler: Any, request: Any, asked: dict[str, Any], tally: Tally
) -> AsyncGenerator[Head | Chunk, None]:
    """Chat and text completions."""
    asked_usage = bool((asked.get("stream_options") or {}).get("include_usage"))
    if request.stream:
        request.stream_options = _with_usage(request.stream_options)
    response = await handler.handle_request(request, None)
    if hasattr(response, "body_iterator"):
        async for part in _completion_events(response.body_iterator, tally, asked_usage=asked_usage):
            yield part
    elif hasattr(response, "model_dump"):
        try:
            values = clean_completion(response.model_dump(), tally)
        except AbortedError as error:
            for part in failed(503, str(error), None):
                yield part
            return
        yield Head(200, "application/json")
        yield Chunk(orjson.dumps(values))
    else:
        for part in _refusal(response):
            yield part


async def _completion_events(
    events: Any, tally: Tally, *, asked_usage: bool
) -> AsyncGenerator[Head | Chunk, None]:
    """The head waits for the first event, which may be an error; an error is the last one."""
    begun = False
    try:
        async for raw in events:
            try:
                event = _event(raw, tally, asked_usage)
            except _StreamError as error:
                if not begun:
                    for part in failed(error.status, str(error), error.param):
                        yield part
                else:
                    yield _sse(error_body(error.status, str(error), error.param))
                return
            if event is None:
                continue
            if not begun:
                begun = True
                yield Head(200, "text/event-stream; charset=utf-8")
            yield event
    finally:
        await events.aclose()


async def responses(
    handler: Any, request: Any, asked: dict[str, Any], tally: Tally
) -> AsyncGenerator[Head | Chunk, None]:
    """Responses, which SGLang keeps nothing of."""
    _prepare_response(handler, request)
    try:
        response = await handler.create_responses(request, None)
    except (KeyError, AttributeError, IndexError, AssertionError, TypeError) as error:
        logger.exception("a response could not be begun")
        for part in failed(400, f"input: it cannot be used ({error!r}); send messages and items", "input"):
            yield part
        return
    if inspect.isasyncgen(response):
        async for part in _response_events(response, asked, tally):
            yield part
    elif hasattr(response, "model_dump"):
        values = clean_response(response.model_dump(), asked, tally)
        if values["status"] == "failed":
            message = (values.get("error") or {}).get("message") or "the engine gave this answer up"
            for part in failed(503, message, None):
                yield part
            return
        yield Head(200, "application/json")
        yield Chunk(orjson.dumps(values))
    else:
        for part in _refusal(response):
            yield part


def _prepare_response(handler: Any, request: Any) -> None:
    request.request_id = f"resp_{uuid.uuid4().hex}"
    request.store = False
    # What the answer says was used is what is used.
    for name in ("temperature", "top_p"):
        if getattr(request, name) is None:
            setattr(request, name, handler.default_sampling_params.get(name, 1.0))
    if request.max_output_tokens is not None:
        # SGLang takes two off again.
        request.max_output_tokens += 2


async def _response_events(
    events: Any, asked: dict[str, Any], tally: Tally
) -> AsyncGenerator[Head | Chunk, None]:
    """The head waits for the first event after the opening, which tells whether the prompt can be used."""
    opening: list[dict[str, Any]] = []
    begun = False
    try:
        async for raw in events:
            payload = _payload(raw)
            if payload is None:
                continue
            event = clean_event(orjson.loads(payload), asked, tally)
            if not begun:
                if event["type"] in _OPENING:
                    opening.append(event)
                    continue
                if event["type"] == "response.failed":
                    for part in failed(400, event["response"]["error"]["message"], None):
                        yield part
                    return
                begun = True
                yield Head(200, "text/event-stream; charset=utf-8")
                for first in opening:
                    yield _sse(first, first["type"])
            yield _sse(event, event["type"])
    finally:
        await events.aclose()


def _with_usage(options: Any) -> Any:
    from sglang.srt.entrypoints.openai.protocol import StreamOptions

    options = options or StreamOptions()
    options.include_usage = True
    return options


class _StreamError(RuntimeError):
    def __init__(self, status: int, message: str, param: str | None) -> None:
        super().__init__(message)
        self.status, self.param = status, param


def failed(status: int, message: str, param: str | None) -> tuple[Head, Chunk]:
    """An error as head and body."""
    return Head(status, "application/json"), Chunk(orjson.dumps(error_body(status, message, param)))


def _refusal(response: Any) -> tuple[Head, Chunk]:
    """An error answer of SGLang's, nested or flat."""
    failure = orjson.loads(bytes(response.body))
    failure = failure.get("error", failure)
    return failed(response.status_code, failure.get("message", ""), failure.get("param"))


def _payload(raw: str | bytes) -> str | None:
    """The data of one server-sent event."""
    text = raw.decode() if isinstance(raw, bytes) else raw
    return text.partition("data:")[2].strip() or None


def _event(raw: str | bytes, tally: Tally, asked_usage: bool) -> Chunk | None:
    """One event of a streamed completion; None for what the client did not ask for. Raises _StreamError."""
    payload = _payload(raw)
    if payload is None:
        return None
    if payload == "[DONE]":
        return Chunk(b"data: [DONE]\n\n")
    values = orjson.loads(payload)
    if "error" in values:
        status, told = values["error"].get("code"), values["error"]
        status = status if isinstance(status, int) and status >= 400 else 500
        raise _StreamError(status, told.get("message", ""), told.get("param"))
    try:
        values = clean_completion(values, tally)
    except AbortedError as error:
        raise _StreamError(503, str(error), None) from None
    if not values.get("choices") and not asked_usage:
        return None
    if not asked_usage:
        values.pop("usage", None)
    return _sse(values)


def _sse(values: dict[str, Any], name: str = "") -> Chunk:
    head = f"event: {name}\n".encode() if name else b""
    return Chunk(head + b"data: " + orjson.dumps(values) + b"\n\n")
