"""OpenAI requests through SGLang's own handlers, without HTTP.

SGLang parses, templates, generates and formats; `openai_bodies` puts its answers into OpenAI's exact shape.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import orjson
from pydantic import ValidationError

from seedbed_server.engine.openai_answers import Chunk, Head, completions, failed, responses
from seedbed_server.engine.openai_bodies import Tally

__all__ = ["Chunk", "Head", "OpenAIRoutes", "Tally"]

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
_INTERNAL = (
    "lora_path",
    "custom_params",
    "extra_key",
    "cache_salt",
    "rid",
    "request_id",
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


class OpenAIRoutes:
    """SGLang's handlers by route.

    Attributes:
        tool_call_parser: SGLang's parser for tool calls of the loaded model, or an empty text.
        reasoning_parser: likewise for reasoning.
    """

    def __init__(self, engine: Any) -> None:
        from sglang.srt.entrypoints.openai import protocol

        from seedbed_server.engine import openai_handlers as handlers

        manager, templates = engine.tokenizer_manager, engine.template_manager
        chat = handlers.Chat(manager, templates)
        self._routes: dict[str, tuple[type, Any]] = {
            CHAT: (protocol.ChatCompletionRequest, chat),
            COMPLETIONS: (protocol.CompletionRequest, handlers.Text(manager, templates)),
            RESPONSES: (protocol.ResponsesRequest, handlers.Responses(manager, templates)),
        }
        self._forced: dict[str, Any] = {}
        if not handlers.forces_by_itself(chat.tool_call_parser, manager.tokenizer):
            self._forced[CHAT] = handlers.ForcedChat(manager, templates)
            self._forced[RESPONSES] = handlers.ForcedResponses(manager, templates)
        self._vocabulary = int(manager.model_config.vocab_size)
        self.tool_call_parser = str(chat.tool_call_parser or "")
        self.reasoning_parser = str(chat.reasoning_parser or "")

    async def run(
        self, route: str, body: bytes, namespace: str, tally: Tally
    ) -> AsyncGenerator[Head | Chunk, None]:
        """One head, then chunks. `tally` is complete when the last one was taken.

        Closing the iterator early stops the generation.
        """
        try:
            handler, request, asked = self._parse(route, body)
        except _Refused as refused:
            for part in failed(refused.status, str(refused), refused.param):
                yield part
            return
        request.extra_key = namespace
        answers = responses if route == RESPONSES else completions
        async with aclosing(answers(handler, request, asked, tally)) as parts:
            async for answer in parts:
                yield answer

    def _parse(self, route: str, body: bytes) -> tuple[Any, Any, dict[str, Any]]:
        """Handler, request, and the body as it was sent. Raises _Refused."""
        if route not in self._routes:
            known = ", ".join(sorted(self._routes))
            raise _Refused(f"route: {route!r} is not served; use one of {known}", None, 404)
        kind, handler = self._routes[route]
        try:
            values = orjson.loads(body)
        except ValueError as error:
            raise _Refused(f"the body is no JSON ({error}); send one JSON object", None) from error
        if not isinstance(values, dict):
            raise _Refused("the body is no JSON object; send one", None)
        # Null is how clients leave a field out; some of SGLang's types do not know it.
        asked = {name: value for name, value in values.items() if value is not None}
        if isinstance(asked.get("tools"), list):
            asked["tools"] = [_without_nulls(tool) for tool in asked["tools"]]
        for name in _INTERNAL:
            if name in asked:
                raise _Refused(f"{name}: this field is not open to clients; leave it out", name)
        try:
            request = kind(**asked)
        except ValidationError as error:
            first = error.errors()[0]
            param = ".".join(str(p) for p in first["loc"])
            raise _Refused(f"{param}: {first['msg']} (given: {_short(first['input'])})", param) from error
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise _Refused(f"the body cannot be used: {error}", None) from error
        _check_tokens(request, self._vocabulary)
        choice = getattr(request, "tool_choice", "auto")
        if choice not in ("auto", "none", None) and route in self._forced:
            handler = self._forced[route]
            # A small model that may call again does so without end, and a named function is called once.
            if choice != "required" or "parallel_tool_calls" not in asked:
                request.parallel_tool_calls = False
        return handler, request, asked


class _Refused(ValueError):
    def __init__(self, message: str, param: str | None, status: int = 400) -> None:
        super().__init__(message)
        self.param, self.status = param, status


def _without_nulls(tool: Any) -> Any:
    if not isinstance(tool, dict):
        return tool
    kept = {name: value for name, value in tool.items() if value is not None}
    if isinstance(function := kept.get("function"), dict):
        kept["function"] = {name: value for name, value in function.items() if value is not None}
    return kept


def _check_tokens(request: Any, vocabulary: int) -> None:
    """Raises _Refused for what would end SGLang's scheduler, which does not look at it."""
    for name in ("prompt", "stop_token_ids"):
        values = getattr(request, name, None)
        if not isinstance(values, list):
            continue
        for token in (token for row in values for token in (row if isinstance(row, list) else (row,))):
            if isinstance(token, int) and not 0 <= token < vocabulary:
                raise _Refused(
                    f"{name}: {token} is outside the vocabulary of {vocabulary}; use the model's tokens", name
                )
    patterns = getattr(request, "stop_regex", None)
    for pattern in [patterns] if isinstance(patterns, str) else patterns or ():
        try:
            re.compile(pattern)
        except (re.error, TypeError, RecursionError, OverflowError) as error:
            raise _Refused(f"stop_regex: {_short(pattern)} is no pattern ({error})", "stop_regex") from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
