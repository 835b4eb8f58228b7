"""OpenAI requests through SGLang's own handlers, without HTTP.

SGLang parses, templates, generates and formats; here its own extras are taken out of the bodies, errors get
OpenAI's shape, and tokens are counted.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

__all__ = ["Chunk", "Head", "OpenAIRoutes", "Tally"]

_BODY_EXTRAS = ("metadata", "sglext")
_CHOICE_EXTRAS = ("matched_stop", "hidden_states", "meta_info", "sglext", "token_ids", "prompt_token_ids")
_USAGE_EXTRAS = ("reasoning_tokens",)
_INTERNAL = (
    "lora_path",
    "custom_params",
    "extra_key",
    "cache_salt",
    "rid",
    "custom_logit_processor",
    "session_params",
    "session_id",
    "input_ids",
    "data_parallel_rank",
    "routed_dp_rank",
    "return_hidden_states",
    "return_routed_experts",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
)


@dataclass(frozen=True)
class Head:
    """Status and content type of an answer; comes first."""

    status: int
    content_type: str


@dataclass(frozen=True)
class Chunk:
    """Bytes of the body: a whole JSON object, or one server-sent event."""

    data: bytes


@dataclass
class Tally:
    """What an answer used."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    finish_reasons: dict[int, str] = field(default_factory=dict)

    def add_usage(self, usage: dict[str, Any]) -> None:
        """Takes over OpenAI's `usage` object."""
        self.prompt_tokens = usage.get("prompt_tokens") or 0
        self.completion_tokens = usage.get("completion_tokens") or 0
        self.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


class OpenAIRoutes:
    """SGLang's handlers by route."""

    def __init__(self, engine: Any) -> None:
        from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
        from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat

        chat = OpenAIServingChat(engine.tokenizer_manager, engine.template_manager)
        self._routes: dict[str, tuple[type, Any]] = {"/v1/chat/completions": (ChatCompletionRequest, chat)}

    async def run(
        self, route: str, body: bytes, namespace: str, tally: Tally
    ) -> AsyncGenerator[Head | Chunk, None]:
        """One head, then chunks. `tally` is complete when the last one was taken.

        Closing the iterator early stops the generation.
        """
        try:
            handler, request, asked_usage = self._parse(route, body)
        except _Refused as refused:
            for part in _failed(refused.status, str(refused), refused.param):
                yield part
            return
        request.extra_key = namespace
        response = await handler.handle_request(request, None)
        if hasattr(response, "body_iterator"):
            yield Head(200, "text/event-stream; charset=utf-8")
            try:
                async for raw in response.body_iterator:
                    event = _event(raw, tally, asked_usage)
                    if event is not None:
                        yield event
            finally:
                await response.body_iterator.aclose()
        elif hasattr(response, "model_dump"):
            values = _clean(response.model_dump(), tally)
            yield Head(200, "application/json")
            yield Chunk(json.dumps(values, ensure_ascii=False).encode())
        else:
            failure = json.loads(bytes(response.body))
            for part in _failed(response.status_code, failure.get("message", ""), failure.get("param")):
                yield part

    def _parse(self, route: str, body: bytes) -> tuple[Any, Any, bool]:
        """Handler, request, and whether the client wants a usage event of its own. Raises _Refused."""
        if route not in self._routes:
            known = ", ".join(sorted(self._routes))
            raise _Refused(f"route: {route!r} is not served; use one of {known}", None, 404)
        kind, handler = self._routes[route]
        try:
            values = json.loads(body)
        except ValueError as error:
            raise _Refused(f"the body is no JSON ({error}); send one JSON object", None) from error
        if not isinstance(values, dict):
            raise _Refused("the body is no JSON object; send one", None)
        for name in _INTERNAL:
            if values.get(name) is not None:
                raise _Refused(f"{name}: this field is not open to clients; leave it out", name)
        try:
            request = kind(**values)
        except ValidationError as error:
            first = error.errors()[0]
            param = ".".join(str(p) for p in first["loc"])
            raise _Refused(f"{param}: {first['msg']} (given: {_short(first['input'])})", param) from error
        except ValueError as error:
            raise _Refused(str(error), None) from error
        asked_usage = bool((values.get("stream_options") or {}).get("include_usage"))
        if request.stream:
            request.stream_options = _with_usage(request.stream_options)
        return handler, request, asked_usage


class _Refused(ValueError):
    def __init__(self, message: str, param: str | None, status: int = 400) -> None:
        super().__init__(message)
        self.param, self.status = param, status


def _with_usage(options: Any) -> Any:
    from sglang.srt.entrypoints.openai.protocol import StreamOptions

    options = options or StreamOptions()
    options.include_usage = True
    return options


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _error(status: int, message: str, param: str | None) -> dict[str, Any]:
    """An error in OpenAI's shape; the type is the one that OpenAI gives for the status."""
    overflow = "context length" in message or "maximum allowed length" in message
    kind = {404: "not_found_error", 429: "rate_limit_error"}.get(
        status, "invalid_request_error" if status < 500 else "server_error"
    )
    code = "context_length_exceeded" if overflow and status == 400 else None
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _failed(status: int, message: str, param: str | None) -> tuple[Head, Chunk]:
    body = json.dumps(_error(status, message, param), ensure_ascii=False).encode()
    return Head(status, "application/json"), Chunk(body)


def _event(raw: str | bytes, tally: Tally, asked_usage: bool) -> Chunk | None:
    """One server-sent event of SGLang's in our form; None for what the client did not ask for."""
    text = (raw.decode() if isinstance(raw, bytes) else raw).strip()
    payload = text.partition("data:")[2].strip()
    if payload == "[DONE]":
        return Chunk(b"data: [DONE]\n\n")
    values = json.loads(payload)
    if "error" in values:
        status = values["error"].get("code")
        status = status if isinstance(status, int) else 500
        values = _error(status, values["error"].get("message", ""), values["error"].get("param"))
    else:
        values = _clean(values, tally)
        if not values.get("choices") and not asked_usage:
            return None
        if not asked_usage:
            values.pop("usage", None)
    return Chunk(b"data: " + json.dumps(values, ensure_ascii=False).encode() + b"\n\n")


def _clean(body: dict[str, Any], tally: Tally) -> dict[str, Any]:
    """A completion or a chunk of one without SGLang's own fields; counts on the way."""
    for name in _BODY_EXTRAS:
        body.pop(name, None)
    usage = body.get("usage")
    if usage:
        tally.add_usage(usage)
        for name in _USAGE_EXTRAS:
            usage.pop(name, None)
    for choice in body.get("choices") or []:
        for name in _CHOICE_EXTRAS:
            choice.pop(name, None)
        if choice.get("finish_reason"):
            tally.finish_reasons[choice["index"]] = choice["finish_reason"]
        for part in (choice.get("message"), choice.get("delta")):
            if part is not None:
                for name in ("reasoning_content", "tool_calls"):
                    if part.get(name) is None:
                        part.pop(name, None)
    return body
