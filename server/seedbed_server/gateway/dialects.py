"""What differs between the routes: where ids and names stand, which event ends an answer, what was said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seedbed_server.gateway import ids
from seedbed_server.gateway.errors import error_body
from seedbed_server.gateway.request import CHAT, COMPLETIONS, RESPONSES

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DIALECTS", "Dialect"]


class Dialect:
    """Chat completions; the other routes say what is different.

    One object serves all requests of a route; what one answer has said so far is kept by `listen`'s caller.
    """

    prefix = ids.CHAT_PREFIX

    def marked(
        self, body: Mapping[str, Any], completion_id: str, model: str, about: dict[str, Any]
    ) -> dict[str, Any]:
        """A whole body, or an event, with our id, the name that was asked for, and `seedbed`."""
        return {**body, "id": completion_id, "model": model, "seedbed": about}

    def finished(self, event: Mapping[str, Any]) -> int:
        """How many choices end with this event."""
        return sum(choice.get("finish_reason") is not None for choice in event.get("choices") or ())

    def error(self, status: int, message: str, code: str | None) -> dict[str, Any]:
        """The event of a failure after the first chunk."""
        return error_body(status, message, code=code)

    def listen(self, heard: dict[int, dict[str, Any]], body: Mapping[str, Any]) -> None:
        """Adds what a body or an event says to what each choice has said so far."""
        for choice in body.get("choices") or ():
            whole = choice.get("message")
            if whole is not None:
                heard[choice["index"]] = dict(whole)
                continue
            message = heard.setdefault(
                choice["index"], {"role": "assistant", "content": "", "tool_calls": []}
            )
            delta = choice.get("delta") or {}
            message["content"] += delta.get("content") or ""
            for call in delta.get("tool_calls") or ():
                _add_call(message["tool_calls"], call)

    def answers(self, heard: dict[int, dict[str, Any]]) -> list[list[Any]]:
        """For each choice the messages that it adds to the conversation."""
        return [[heard[index]] for index in sorted(heard)]

    def named(self, event: Mapping[str, Any]) -> bytes:  # noqa: ARG002
        """The `event:` line of a server-sent event, where the route has one."""
        return b""


class _Completions(Dialect):
    prefix = ids.COMPLETION_PREFIX

    def listen(self, heard: dict[int, dict[str, Any]], body: Mapping[str, Any]) -> None:
        """Texts grow."""
        for choice in body.get("choices") or ():
            said = heard.setdefault(choice["index"], {"text": ""})
            said["text"] += choice.get("text") or ""

    def answers(self, heard: dict[int, dict[str, Any]]) -> list[list[Any]]:
        """For each choice its text."""
        return [[heard[index]["text"]] for index in sorted(heard)]


class _Responses(Dialect):
    prefix = ids.RESPONSE_PREFIX

    def marked(
        self, body: Mapping[str, Any], completion_id: str, model: str, about: dict[str, Any]
    ) -> dict[str, Any]:
        """Events carry the response only where it begins and ends."""
        if body.get("object") == "response":
            return super().marked(body, completion_id, model, about)
        marked = {**body, "seedbed": about}
        if isinstance(body.get("response"), dict):
            marked["response"] = super().marked(body["response"], completion_id, model, about)
        return marked

    def finished(self, event: Mapping[str, Any]) -> int:
        """The one answer ends with one of these."""
        return int(event.get("type") in ("response.completed", "response.incomplete", "response.failed"))

    def error(self, status: int, message: str, code: str | None) -> dict[str, Any]:
        """The event that OpenAI has, with the object that its clients look for."""
        return {
            "type": "error",
            "code": code,
            "message": message,
            "param": None,
            "sequence_number": 0,
            **error_body(status, message, code=code),
        }

    def listen(self, heard: dict[int, dict[str, Any]], body: Mapping[str, Any]) -> None:
        """The last event has everything."""
        whole = body.get("response", body)
        if isinstance(whole, dict) and whole.get("output"):
            heard[0] = {"output": whole["output"]}

    def answers(self, heard: dict[int, dict[str, Any]]) -> list[list[Any]]:
        """All items of the one answer."""
        return [list(heard[0]["output"])] if heard else []

    def named(self, event: Mapping[str, Any]) -> bytes:
        """Clients of responses tell events apart by it."""
        return f"event: {event.get('type', 'error')}\n".encode()


def _add_call(calls: list[dict[str, Any]], delta: Mapping[str, Any]) -> None:
    index = delta.get("index") or 0
    while len(calls) <= index:
        calls.append({"id": None, "function": {"name": "", "arguments": ""}})
    call, function = calls[index], delta.get("function") or {}
    call["id"] = delta.get("id") or call["id"]
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


DIALECTS: dict[str, Dialect] = {CHAT: Dialect(), COMPLETIONS: _Completions(), RESPONSES: _Responses()}
