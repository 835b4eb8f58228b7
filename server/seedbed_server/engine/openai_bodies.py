"""SGLang's answers in the exact shape of OpenAI's: its own extras are taken out, tokens are counted.

Only what OpenAI's types know stays, and `reasoning_content` where a model has some.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

__all__ = ["AbortedError", "Tally", "clean_completion", "clean_event", "clean_response", "error_body"]

_BODY_EXTRAS = ("metadata", "sglext")
_CHOICE_EXTRAS = (
    "matched_stop",
    "hidden_states",
    "meta_info",
    "sglext",
    "token_ids",
    "prompt_token_ids",
    "response_token_ids",
)
_RESPONSE_EXTRAS = ("store",)
_EVENT_EXTRAS = {"response.function_call_arguments.done": ("name", "namespace")}
# What OpenAI writes for a token that cannot come; JSON has no minus infinity.
_NEVER = -9999.0
# Where in its sources the grammar compiler noticed something: nothing that a client could use.
_PLACE = re.compile(r"\[\d\d:\d\d:\d\d\] \S+:\d+: ")
# What pydantic says of a message that SGLang cannot read: the first of its findings is enough.
_WRONG = re.compile(
    r"\d+ validation errors? for \w+\n(?P<field>[\w.]+?)(\.[\w-]+[\[(].*)?\n\s+(?P<problem>.*?) \[type="
)
_KINDS = {404: "not_found_error", 429: "rate_limit_error"}


class AbortedError(RuntimeError):
    """SGLang gave an answer up half-way."""


@dataclass
class Tally:
    """What an answer used."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    finish_reasons: dict[int, str] = field(default_factory=dict)

    def add_usage(self, usage: dict[str, Any]) -> None:
        """Takes over the `usage` object of a completion."""
        self.prompt_tokens = usage.get("prompt_tokens") or 0
        self.completion_tokens = usage.get("completion_tokens") or 0
        self.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


def error_body(status: int, message: str, param: str | None) -> dict[str, Any]:
    """An error in OpenAI's shape; the type is the one that OpenAI gives for the status."""
    message = _PLACE.sub("", message).strip().removesuffix(" None") or HTTPStatus(status).phrase
    if (wrong := _WRONG.match(message)) is not None:
        message = f"{wrong['field']}: {wrong['problem']}"
    overflow = "context length" in message or "maximum allowed length" in message
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    code = "context_length_exceeded" if overflow and status == 400 else None
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def clean_completion(body: dict[str, Any], tally: Tally) -> dict[str, Any]:
    """A completion, chat or text, or a chunk of one. Raises AbortedError."""
    for name in _BODY_EXTRAS:
        body.pop(name, None)
    if body.get("usage"):
        _clean_usage(body["usage"], tally)
    for choice in body.get("choices") or ():
        for name in _CHOICE_EXTRAS:
            choice.pop(name, None)
        reason = choice.get("finish_reason")
        if reason == "abort":
            raise AbortedError("the engine gave this answer up; ask again")
        if reason:
            tally.finish_reasons[choice["index"]] = reason
        if "text" in choice:
            _clean_text_logprobs(choice.get("logprobs"))
            continue
        _clean_chat_logprobs(choice.get("logprobs"))
        if (message := choice.get("message")) is not None:
            _clean_message(message)
            for call in message.get("tool_calls") or ():
                call.pop("index", None)
        elif (delta := choice.get("delta")) is not None:
            _clean_message(delta)
    return body


def _clean_usage(usage: dict[str, Any], tally: Tally) -> None:
    tally.add_usage(usage)
    usage.pop("reasoning_tokens", None)
    for name in ("prompt_tokens_details", "completion_tokens_details"):
        if usage.get(name) is None:
            usage.pop(name, None)
        else:
            usage[name].pop("video_tokens", None)


def _clean_message(message: dict[str, Any]) -> None:
    for name in ("reasoning_content", "tool_calls", "hidden_states"):
        if message.get(name) is None:
            message.pop(name, None)


def _clean_chat_logprobs(logprobs: dict[str, Any] | None) -> None:
    for token in (logprobs or {}).get("content") or ():
        _clean_logprob(token)
        for top in token.get("top_logprobs") or ():
            _clean_logprob(top)


def _clean_logprob(token: dict[str, Any]) -> None:
    if token["logprob"] is None or token["logprob"] == -math.inf:
        token["logprob"] = _NEVER


def _clean_text_logprobs(logprobs: dict[str, Any] | None) -> None:
    if logprobs is not None:
        # Where none were asked for SGLang writes null, and OpenAI's type knows only objects.
        logprobs["top_logprobs"] = [
            {token: _NEVER if value is None else value for token, value in (top or {}).items()}
            for top in logprobs.get("top_logprobs") or ()
        ]


def clean_event(event: dict[str, Any], asked: dict[str, Any], tally: Tally) -> dict[str, Any]:
    """One event of a streamed response."""
    if "response" in event:
        event["response"] = clean_response(event["response"], asked, tally)
    for name in _EVENT_EXTRAS.get(event["type"], ()):
        event.pop(name, None)
    return event


def clean_response(body: dict[str, Any], asked: dict[str, Any], tally: Tally) -> dict[str, Any]:
    """A response object; `asked` is the request's body, whose tools come back as they were given."""
    for name in _RESPONSE_EXTRAS:
        body.pop(name, None)
    body["tools"] = asked.get("tools") or []
    body["tool_choice"] = asked.get("tool_choice") or "auto"
    body["max_output_tokens"] = asked.get("max_output_tokens")
    usage = body.get("usage")
    if usage:
        tally.prompt_tokens = usage["input_tokens"]
        tally.completion_tokens = usage["output_tokens"]
        tally.cached_tokens = usage["input_tokens_details"]["cached_tokens"]
    status = body.get("status")
    if status in ("completed", "incomplete"):
        called = any(str(item.get("type", "")).endswith("_call") for item in body.get("output") or ())
        tally.finish_reasons[0] = "length" if status == "incomplete" else "tool_calls" if called else "stop"
    return body
