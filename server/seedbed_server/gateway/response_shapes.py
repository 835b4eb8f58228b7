"""The body of POST /v1/responses: items instead of messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from seedbed_server.gateway.shapes import WHOLE, OpenAIBody, Shape, Tokens

__all__ = ["ResponseBody"]


class InputText(Shape):
    """A part of a message."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class InputRefusal(Shape):
    """A part of an earlier answer."""

    type: Literal["refusal"]
    refusal: str


class MessageItem(Shape):
    """What somebody says."""

    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: (
        str
        | Annotated[
            list[Annotated[InputText | InputRefusal, Field(discriminator="type")]], Field(min_length=1)
        ]
    )


class CallItem(Shape):
    """A call of a function in an earlier answer."""

    type: Literal["function_call"]
    call_id: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(min_length=1)]
    arguments: str


class CallOutputItem(Shape):
    """What a tool gave back."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: Annotated[str, Field(min_length=1)]
    output: str | Annotated[list[InputText], Field(min_length=1)]


class CustomCallItem(Shape):
    """A call of a custom tool in an earlier answer."""

    type: Literal["custom_tool_call"]
    call_id: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(min_length=1)]
    input: str


class ReasoningItem(Shape):
    """Reasoning of an earlier answer."""

    type: Literal["reasoning"]
    summary: list[dict[str, Any]]


_TAGS = {
    "function_call": "function_call",
    "function_call_output": "output",
    "custom_tool_call_output": "output",
    "custom_tool_call": "custom_tool_call",
    "reasoning": "reasoning",
}


def _tag(item: Any) -> str:
    """A message needs not say that it is one."""
    kind = item.get("type") if isinstance(item, dict) else None
    return _TAGS.get(kind, "message") if isinstance(kind, str) else "message"


Item: TypeAlias = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[CallOutputItem, Tag("output")]
    | Annotated[CustomCallItem, Tag("custom_tool_call")]
    | Annotated[ReasoningItem, Tag("reasoning")],
    Discriminator(_tag),
]


class FunctionTool(Shape):
    """A tool of a response."""

    type: Literal["function"]
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_.-]+$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class CustomTool(Shape):
    """A tool that takes plain text."""

    type: Literal["custom"]
    name: Annotated[str, Field(min_length=1, max_length=64)]


class ResponseBody(OpenAIBody):
    """POST /v1/responses."""

    input: Annotated[str, Field(min_length=1)] | Annotated[list[Item], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Tokens | None = None
    parallel_tool_calls: bool | None = None
    tools: list[Annotated[FunctionTool | CustomTool, Field(discriminator="type")]] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20), WHOLE] | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    include: list[str] | None = None
    store: bool | None = None
