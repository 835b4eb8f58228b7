"""Every body and every event against the models of the openai package, unknown fields refused.

Two things may be there that OpenAI does not have: `seedbed`, and `reasoning_content` that is not null.
"""

import json
from typing import Any, Literal, get_args

from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseErrorEvent, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter, ValidationError
from wire import Exchange

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"


class Models(BaseModel):
    """`GET /v1/models`, whose class in the openai package is a page and no model."""

    object: Literal["list"]
    data: list[Model]


class Error(BaseModel):
    """What is inside of an error."""

    message: str
    type: str
    param: str | None
    code: str | None


class Failure(BaseModel):
    """The body of an error."""

    error: Error


BODIES: dict[str, Any] = {CHAT: ChatCompletion, TEXT: Completion, RESPONSES: Response}
EVENTS: dict[str, Any] = {CHAT: ChatCompletionChunk, TEXT: Completion}
_RESPONSE_EVENTS = {
    literal: kind
    for kind in get_args(get_args(ResponseStreamEvent)[0])
    for literal in get_args(kind.model_fields["type"].annotation)
}


def problems(exchange: Exchange) -> tuple[int, int, list[str]]:
    """How many bodies and events were looked at, and what is wrong with them."""
    if exchange.status == 0 or not exchange.body:
        return 0, 0, []
    route = _route(exchange.path)
    where = f"{exchange.method} {exchange.path} ({exchange.status})"
    if exchange.headers.get("content-type", "").startswith("text/event-stream"):
        events, found = _stream(route, exchange)
        return 0, events, [f"{where}: {problem}" for problem in found]
    if not exchange.ended:
        return 0, 0, []
    kind: Any = None
    if exchange.status >= 400:
        kind = Failure
    elif route == "/v1/models":
        kind = Models
    elif route.startswith("/v1/models/"):
        kind = Model
    elif exchange.method == "POST":
        kind = BODIES.get(route)
    if kind is None:
        return 0, 0, []
    try:
        values = json.loads(bytes(exchange.body))
    except ValueError as error:
        return 1, 0, [f"{where}: no JSON: {error}"]
    if kind is Failure and route == "/v1/feedback":
        values = {"error": values.get("error")}
    return 1, 0, [f"{where}: {problem}" for problem in _refusals(kind, _without_ours(values))]


def _route(path: str) -> str:
    """The path below an episode's base URL is that of the ordinary route."""
    if path.startswith("/v1/episodes/") and "/v1/" in path[3:]:
        return "/v1/" + path.rpartition("/v1/")[2]
    return path


def _without_ours(values: Any) -> Any:
    """Less what OpenAI does not have and we may."""
    if isinstance(values, list):
        return [_without_ours(value) for value in values]
    if not isinstance(values, dict):
        return values
    kept = {name: _without_ours(value) for name, value in values.items()}
    if isinstance(kept.get("seedbed"), dict):
        del kept["seedbed"]
    if kept.get("reasoning_content") is not None:
        del kept["reasoning_content"]
    return kept


def _as_a_whole(event: dict[str, Any]) -> dict[str, Any]:
    """The package has one model for a text completion and for the events of its stream. In these OpenAI sends
    a `finish_reason` of null until the end, which the model knows nothing of.
    """
    choices = event.get("choices")
    if not isinstance(choices, list):
        return event
    ended = [c | {"finish_reason": "stop"} if c.get("finish_reason", "") is None else c for c in choices]
    return event | {"choices": ended}


def _refusals(kind: Any, values: Any) -> list[str]:
    try:
        TypeAdapter(kind).validate_json(json.dumps(values), strict=True, extra="forbid")
    except ValidationError as error:
        return [
            f"{'.'.join(map(str, detail['loc']))}: {detail['msg']} (given: {str(detail['input'])[:80]})"
            for detail in error.errors(include_url=False)[:6]
        ]
    return []


def _stream(route: str, exchange: Exchange) -> tuple[int, list[str]]:
    """A stream that was read to its end must also tell a whole story."""
    blocks = bytes(exchange.body).decode().split("\n\n")
    if blocks.pop() != "" and exchange.ended:
        return 0, ["the last event has no blank line after it"]
    found: list[str] = []
    events: list[dict[str, Any]] = []
    done = False
    for number, block in enumerate(blocks):
        name, data = _event(block)
        if done:
            found.append(f"event {number} comes after [DONE]")
        if data == "[DONE]":
            done = True
            continue
        try:
            events.append(json.loads(data))
        except ValueError:
            found.append(f"event {number} is no JSON: {block[:80]!r}")
            continue
        found += [f"event {number}: {problem}" for problem in _event_problems(route, name, events[-1])]
    if exchange.ended and not any("error" in event or event.get("type") == "error" for event in events):
        if route == RESPONSES:
            found += _story_of_response(events)
        else:
            found += _story(exchange.asked, events, done=done)
    return len(events), found


def _event_problems(route: str, name: str | None, values: dict[str, Any]) -> list[str]:
    if route == RESPONSES:
        kind = _RESPONSE_EVENTS.get(values.get("type"))
        if kind is None:
            return [f"{values.get('type')!r} is no event that OpenAI has"]
        if kind is ResponseErrorEvent and "error" in values:
            # The SDK raises for what is under `error`, and passes over the event of its own model.
            nested = _refusals(Failure, {"error": values["error"]})
            return nested + _refusals(
                kind, {k: v for k, v in values.items() if k not in ("error", "seedbed")}
            )
        named = [] if name == values["type"] else [f"it is named {name!r} and is a {values['type']!r}"]
        return named + _refusals(kind, _without_ours(values))
    if "error" in values:
        return _refusals(Failure, values)
    whose = [] if isinstance(values.get("seedbed"), dict) else ["it does not say whose it is (seedbed)"]
    if route == TEXT:
        values = _as_a_whole(values)
    return whose + _refusals(EVENTS[route], _without_ours(values))


def _event(block: str) -> tuple[str | None, str]:
    name, data = None, ""
    for line in block.split("\n"):
        if line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            data += line[5:].strip()
    return name, data


def _story(asked: dict[str, Any], events: list[dict[str, Any]], *, done: bool) -> list[str]:
    """One id, one end for each choice, usage where and only where it was asked for, and [DONE]."""
    found = []
    if not done:
        found.append("there is no [DONE] at the end")
    found += [
        f"{name} changes within a stream"
        for name in ("id", "model", "created")
        if len({event.get(name) for event in events}) != 1
    ]
    ends = [c["index"] for e in events for c in e["choices"] if c.get("finish_reason") is not None]
    prompts = asked.get("prompt")
    several = len(prompts) if isinstance(prompts, list) and prompts and isinstance(prompts[0], str) else 1
    if sorted(ends) != list(range(several * (asked.get("n") or 1))):
        found.append(f"finish_reason came for the choices {sorted(ends)}")
    with_usage = [number for number, event in enumerate(events) if event.get("usage") is not None]
    if (asked.get("stream_options") or {}).get("include_usage"):
        if with_usage != [len(events) - 1] or events[-1]["choices"]:
            found.append(
                f"usage is in the events {with_usage} of {len(events)}; it must be in a last one of its own"
            )
    elif with_usage:
        found.append(f"nobody asked for usage, and it is in the events {with_usage[:5]}")
    return found


def _story_of_response(events: list[dict[str, Any]]) -> list[str]:
    """Numbered from 0 without a gap, from `created` to an end, and the text is its deltas."""
    found = []
    numbers = [event.get("sequence_number") for event in events]
    if numbers != list(range(len(events))):
        found.append(f"sequence numbers are {numbers[:10]}...")
    kinds = [event.get("type") for event in events]
    if not kinds or kinds[0] != "response.created":
        found.append(f"the first event is {kinds[:1]}")
    if not kinds or kinds[-1] not in ("response.completed", "response.incomplete", "response.failed"):
        found.append(f"the last event is {kinds[-1:]}")
    deltas = "".join(e["delta"] for e in events if e.get("type") == "response.output_text.delta")
    texts = "".join(e["text"] for e in events if e.get("type") == "response.output_text.done")
    if deltas != texts:
        found.append(f"the deltas say {deltas[:60]!r} and the end says {texts[:60]!r}")
    return found
