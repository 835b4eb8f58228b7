"""SGLang's OpenAI handlers with what they leave out; imported once SGLang may be.

- Whatever goes wrong while a request becomes a prompt is the request's doing; SGLang would call it a failure
  of the server.
- The choices of a request with a seed get seeds of their own (`engine.sampling`).
- A streamed token without a text of its own keeps its log-probability.
- A call that `tool_choice` forces is written as JSON under its schema and read as what it is, with or without
  a parser. SGLang does not look for calls without one; with one that only has tags to offer it lets a model
  write on after its call, and holds no arguments to their schema.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import AsyncGenerator
from typing import Any

from sglang.srt.entrypoints.openai.protocol import (
    FunctionResponse,
    LegacyStructuralTagResponseFormat,
    Tool,
    ToolCall,
    ToolCallProcessingResult,
)
from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
from sglang.srt.entrypoints.openai.serving_completions import OpenAIServingCompletion
from sglang.srt.entrypoints.openai.serving_responses import OpenAIServingResponses
from sglang.srt.entrypoints.openai.sse_utils import build_sse_content
from sglang.srt.function_call.core_types import ToolCallItem
from sglang.srt.function_call.function_call_parser import FunctionCallParser
from sglang.srt.function_call.json_array_parser import JsonArrayParser

from seedbed_server.engine.sampling import choices_apart

__all__ = ["Chat", "ForcedChat", "ForcedResponses", "Responses", "Text", "forces_by_itself"]


_NAME = re.compile(r'"name": *"([^"]+)"')


class _Checked:
    """How a request becomes SGLang's internal one. Raises only ValueError."""

    def _convert_to_internal_request(self, request: Any, raw_request: Any = None) -> Any:
        try:
            internal, request = super()._convert_to_internal_request(request, raw_request)  # type: ignore[misc]
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"the request cannot be made into a prompt: {error}") from error
        return choices_apart(internal), request


class Text(_Checked, OpenAIServingCompletion):  # type: ignore[misc]
    """Text completions."""


class Chat(_Checked, OpenAIServingChat):  # type: ignore[misc]
    """Chat completions."""

    async def _generate_stream_content(self, **step: Any) -> AsyncGenerator[str, None]:
        """The events of one token. SGLang ties its log-probability to a text, which it may not have."""
        content, index, request = step["content"], step["index"], step["request"]
        told = self.reasoning_parser or self.tool_call_parser
        if not told and not self._tool_call_parsing_active(request):
            told = len(content["text"]) > step["stream_offsets"].get(index, 0)
        async for event in super()._generate_stream_content(**step):
            yield event
        if step["choice_logprobs"] is not None and not told:
            yield build_sse_content(
                chunk_id=content["meta_info"]["id"],
                created=step["created"],
                model=request.model,
                index=index,
                logprobs=step["choice_logprobs"],
            )


class ForcedChat(Chat):
    """Chat completions whose `tool_choice` forces a call."""

    def __init__(self, manager: Any, templates: Any) -> None:
        super().__init__(manager, templates)
        self.tool_call_parser = None

    def _tool_call_parsing_active(self, request: Any) -> bool:
        return bool(self._effective_tools(request))

    def _process_tool_calls(
        self, text: str, tools: list[Any], finish_reason: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """SGLang reads whole JSON; what `max_tokens` cut off is a call as well, as it is in a stream."""
        result = super()._process_tool_calls(text, tools, finish_reason, *args, **kwargs)
        if result.tool_calls is not None or not text.startswith("["):
            return result
        calls = [
            ToolCall(
                id=f"call_{uuid.uuid4().hex[:24]}",
                index=call.tool_index,
                function=FunctionResponse(name=call.name, arguments=call.parameters),
            )
            for call in _calls_of(text, tools)
        ]
        return ToolCallProcessingResult(calls or None, "", finish_reason)


class Responses(OpenAIServingResponses):  # type: ignore[misc]
    """The Responses API."""

    def __init__(self, manager: Any, templates: Any) -> None:
        super().__init__(manager, templates, enable_prompt_tokens_details=True)


class ForcedResponses(Responses):
    """Responses whose `tool_choice` forces a call."""

    def __init__(self, manager: Any, templates: Any) -> None:
        super().__init__(manager, templates)
        self.tool_call_parser = None

    def _parse_required_tool_json(self, content: str) -> tuple[str, list[ToolCallItem]]:
        """As for chat; the grammar lets only names of tools through."""
        text, calls = super()._parse_required_tool_json(content)
        if calls or not content.startswith("["):
            return text, calls
        tools = [Tool(type="function", function={"name": name}) for name in set(_NAME.findall(content))]
        return "", _calls_of(content, tools)


def _calls_of(text: str, tools: list[Any]) -> list[ToolCallItem]:
    """The calls that the beginning of a JSON list of calls has so far."""
    parser = JsonArrayParser()
    begun = parser.parse_streaming_increment(text, tools)
    calls: dict[int, ToolCallItem] = {}
    for item in (*begun.calls, *parser.finish(tools).calls):
        if item.name:
            calls[item.tool_index] = ToolCallItem(tool_index=item.tool_index, name=item.name, parameters="")
        if item.parameters:
            calls[item.tool_index].parameters += item.parameters
    last = len(calls) - 1
    if 0 <= last < len(parser.prev_tool_call_arr):
        arguments = json.dumps(parser.prev_tool_call_arr[last].get("arguments", {}), ensure_ascii=False)
        calls[last].parameters = calls[last].parameters or arguments
    return list(calls.values())


def forces_by_itself(parser: str, tokenizer: Any) -> bool:
    """Whether a parser of SGLang's has a grammar for forced calls that holds them to one call's form."""
    if not parser:
        return False
    tool = Tool(type="function", function={"name": "f", "parameters": {"type": "object", "properties": {}}})
    constraint = FunctionCallParser([tool], parser, tokenizer=tokenizer).get_structure_constraint("required")
    if constraint is None:
        # It has another way, which SGLang knows.
        return True
    return not isinstance(constraint[1], LegacyStructuralTagResponseFormat)
