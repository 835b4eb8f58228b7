"""What a client may ask: bodies are checked, our fields taken out, names put right, the rest passed on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import ValidationError

from seedbed_server.gateway.association import HEADER, Named
from seedbed_server.gateway.conversations import prefix_digests
from seedbed_server.gateway.errors import ApiError, bad_request
from seedbed_server.gateway.refusals import check_tools, refuse
from seedbed_server.gateway.response_shapes import ResponseBody
from seedbed_server.gateway.shapes import (
    MAX_CHOICES,
    MAX_TEXT,
    ChatBody,
    CompletionBody,
    OpenAIBody,
    SeedbedExtras,
)
from seedbed_server.gateway.spoken import shown, spoken

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CHAT", "COMPLETIONS", "LIVE", "RESPONSES", "Prepared", "prepare"]

LIVE = ":live"
CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
_SHAPES: dict[str, type[OpenAIBody]] = {
    CHAT: ChatBody,
    COMPLETIONS: CompletionBody,
    RESPONSES: ResponseBody,
}
_OURS = "seedbed."


@dataclass(frozen=True)
class Prepared:
    """A request that may go to the engine."""

    route: str
    body: bytes
    model: str
    """As the client wrote it; answers say the same."""
    live: bool
    stream: bool
    choices: int
    group: str | None
    named: tuple[Named, ...]
    """The episodes that body and header name."""
    messages: tuple[Any, ...]
    """The conversation so far; empty for a text completion."""
    text: str | None
    """The one text that a text completion continues, if it is one and is not answered itself (`echo`)."""
    metadata: dict[str, str]
    """What the client says of the request, less what it says to us."""

    @cached_property
    def digests(self) -> list[bytes]:
        """Of each prefix of the conversation; long ones are gone through once."""
        return prefix_digests(self.messages)


def prepare(route: str, body: bytes, headers: Mapping[str, str], model: str) -> Prepared:
    """Checks a body and makes the engine's of it. Raises ApiError 400 or 404 naming field, value and
    remedy.
    """
    try:
        values = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"body: it is not JSON ({error}); send one JSON object") from None
    if not isinstance(values, dict):
        raise bad_request("body: it is no JSON object; send one with `model`")
    live = _is_live(values.get("model"), model)
    refuse(route, values)
    shape = _checked(route, values)
    if shape.count > MAX_CHOICES:
        raise bad_request(
            f"n: {shape.count} choices for all prompts together cannot be made; use at most {MAX_CHOICES}",
            param="n",
        )
    extras = shape.seedbed or SeedbedExtras()
    check_tools(values)
    metadata = _our_metadata(shape.metadata or {})
    named = _named(extras, metadata, headers.get(HEADER))
    group = extras.group or metadata.get("group")
    if extras.group and metadata.get("group") not in (None, extras.group):
        raise bad_request(
            f"seedbed.group: the body says {extras.group!r} and its metadata {metadata['group']!r}; send one",
            param="seedbed.group",
        )
    asked = values["model"]
    _write_integers(values, shape)
    values = {name: value for name, value in values.items() if value is not None and name != "seedbed"}
    if route != RESPONSES:
        values.pop("metadata", None)
    values["model"] = model
    return Prepared(
        route=route,
        body=orjson.dumps(values),
        model=asked,
        live=live,
        stream=bool(shape.stream),
        choices=shape.count,
        group=group,
        named=named,
        messages=_conversation(values),
        text=_text(values),
        metadata={name: text for name, text in (shape.metadata or {}).items() if not name.startswith(_OURS)},
    )


def _is_live(asked: object, model: str) -> bool:
    if not isinstance(asked, str) or not asked:
        raise bad_request(f"model: {asked!r} is not a model name; use {model!r}", param="model")
    if asked not in (model, model + LIVE):
        raise ApiError(
            404,
            f"model: {asked!r} is not served here; use {model!r}, or {model + LIVE!r} for the live one",
            param="model",
            code="model_not_found",
        )
    return asked != model


def _checked(route: str, values: dict[str, Any]) -> OpenAIBody:
    try:
        return _SHAPES[route].model_validate(values)
    except ValidationError as error:
        raise spoken(error, values) from None


def _write_integers(values: dict[str, Any], shape: OpenAIBody) -> None:
    """A whole number is written as one (3, not 3.0), because answers repeat some of them."""
    for name in type(shape).model_fields:
        checked = getattr(shape, name)
        if type(checked) is int or (name == "prompt" and isinstance(checked, list)):
            values[name] = checked


def _our_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """What `metadata` says to us, without the prefix."""
    ours = {name.removeprefix(_OURS): text for name, text in metadata.items() if name.startswith(_OURS)}
    for name, text in ours.items():
        if name not in SeedbedExtras.model_fields:
            raise bad_request(
                f"metadata.{_OURS}{name}: there is no such field; use {_OURS}episode_id or {_OURS}group",
                param=f"metadata.{_OURS}{name}",
            )
        if not 1 <= len(text) <= MAX_TEXT:
            raise bad_request(
                f"metadata.{_OURS}{name}: {shown(text)} cannot be used; send a text of 1 to {MAX_TEXT} "
                "characters",
                param=f"metadata.{_OURS}{name}",
            )
    return ours


def _named(extras: SeedbedExtras, metadata: dict[str, str], header: str | None) -> tuple[Named, ...]:
    if header is not None and not 1 <= len(header) <= MAX_TEXT:
        raise bad_request(
            f"{HEADER}: {shown(header)} cannot be used; send a text of 1 to {MAX_TEXT} characters",
            param=HEADER,
        )
    found = (
        ("seedbed.episode_id", "the body", extras.episode_id),
        ("metadata.seedbed.episode_id", "the body's metadata", metadata.get("episode_id")),
        (HEADER, f"the header {HEADER}", header),
    )
    return tuple(Named(param, source, value) for param, source, value in found if value is not None)


def _text(values: dict[str, Any]) -> str | None:
    prompt = values.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        (prompt,) = prompt
    return prompt if isinstance(prompt, str) and not values.get("echo") else None


def _conversation(values: dict[str, Any]) -> tuple[Any, ...]:
    """The messages of a chat completion, or instructions and items of a response."""
    if "messages" in values:
        return tuple(values["messages"])
    if "input" not in values:
        return ()
    items = values["input"]
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    instructions = values.get("instructions")
    return (*([{"role": "system", "content": instructions}] if instructions else []), *items)
