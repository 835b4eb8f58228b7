"""Bodies of OpenAI requests as this server takes them: checked and published by the same models.

What these models say is checked strictly: no text for a number, nothing out of range. Fields that they do
not list pass through to SGLang (its sampling extras, hints such as `user`), except those that `refusals`
names. Null means the same as a field that is left out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

__all__ = [
    "MAX_CHOICES",
    "MAX_TEXT",
    "WHOLE",
    "ChatBody",
    "CompletionBody",
    "OpenAIBody",
    "SeedbedExtras",
]

MAX_TEXT = 256
MAX_CHOICES = 128
MAX_TOKENS = 2**31 - 1


def _whole(value: object) -> object:
    """JSON knows one kind of number: 3.0 is as whole as 3."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


WHOLE = BeforeValidator(_whole)
Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
Tokens: TypeAlias = Annotated[int, Field(ge=1, le=MAX_TOKENS), WHOLE]
Penalty: TypeAlias = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]
Share: TypeAlias = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Temperature: TypeAlias = Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)]
TokenText: TypeAlias = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
Biases: TypeAlias = Annotated[
    dict[TokenText, Annotated[float, Field(ge=-100, le=100)]],
    Field(json_schema_extra={"additionalProperties": False}),
]
Stop: TypeAlias = str | Annotated[list[str], Field(max_length=16)]
MetadataName: TypeAlias = Annotated[str, Field(min_length=1, max_length=64)]
MetadataText: TypeAlias = Annotated[str, Field(max_length=512)]
Metadata: TypeAlias = Annotated[dict[MetadataName, MetadataText], Field(max_length=16)]


class Shape(BaseModel):
    """Known fields are checked strictly, others pass."""

    model_config = ConfigDict(strict=True, extra="allow")


class SeedbedExtras(BaseModel):
    """Our own fields of a body; they never reach the engine."""

    model_config = ConfigDict(strict=True, extra="forbid")

    episode_id: Text | None = Field(None, description="The episode that the request belongs to.")
    group: Text | None = Field(None, description="The task of a new episode.")


class TextPart(Shape):
    """A part of a message. Only texts are read."""

    type: Literal["text"]
    text: str


class RefusalPart(Shape):
    """A part of an earlier answer."""

    type: Literal["refusal"]
    refusal: str


class FunctionOfCall(Shape):
    """What a tool call calls."""

    name: str
    arguments: str


class ToolCall(Shape):
    """A tool call of an earlier answer."""

    id: str
    type: Literal["function"]
    function: FunctionOfCall


class InstructionMessage(Shape):
    """What the developer says."""

    role: Literal["system", "developer"]
    content: str | Annotated[list[TextPart], Field(min_length=1)]


class UserMessage(Shape):
    """What the user says."""

    role: Literal["user"]
    content: str | Annotated[list[TextPart], Field(min_length=1)]


class AssistantMessage(Shape):
    """An earlier answer."""

    role: Literal["assistant"]
    content: str | Annotated[list[TextPart | RefusalPart], Field(min_length=1)] | None = None
    tool_calls: list[ToolCall] | None = None


class ToolMessage(Shape):
    """What a tool gave back."""

    role: Literal["tool"]
    content: str | Annotated[list[TextPart], Field(min_length=1)]
    tool_call_id: str


Message: TypeAlias = Annotated[
    InstructionMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")
]


class Function(Shape):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_.-]+$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Shape):
    """A tool of a chat completion."""

    type: Literal["function"]
    function: Function


class NameOfFunction(Shape):
    """Which function."""

    name: str


class NamedTool(Shape):
    """The tool that must be called."""

    type: Literal["function"]
    function: NameOfFunction


class StreamOptions(Shape):
    """How a stream is told."""

    include_usage: bool | None = None


class JSONSchema(Shape):
    """A named JSON schema."""

    name: str
    schema_: dict[str, Any] = Field(alias="schema")


class SchemaFormat(Shape):
    """An answer that keeps a JSON schema."""

    type: Literal["json_schema"]
    json_schema: JSONSchema


class PlainFormat(Shape):
    """Text, any JSON object, or SGLang's structural tags."""

    type: Literal["text", "json_object", "structural_tag"]


class OpenAIBody(Shape):
    """What the three routes have in common."""

    model: Annotated[str, Field(min_length=1, description="`<name>`, or `<name>:live`.")]
    stream: bool | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    user: str | None = None
    metadata: Metadata | None = None
    seedbed: SeedbedExtras | None = None

    @property
    def count(self) -> int:
        """How many choices are asked for."""
        return 1


class _Sampled(OpenAIBody):
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: Biases | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES), WHOLE] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63), WHOLE] | None = None
    stop: Stop | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Tokens | None = None

    @property
    def count(self) -> int:
        """How many choices are asked for."""
        return self.n or 1


class ChatBody(_Sampled):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Tokens | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20), WHOLE] | None = None
    response_format: Annotated[SchemaFormat | PlainFormat, Field(discriminator="type")] | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None


# All prompts together may have so many choices; what the document says of it is on the safe side.
_FEW: Any = {
    "anyOf": [
        {"properties": {"prompt": {"type": "string"}}},
        {"properties": {"prompt": {"items": {"type": "integer"}}}},
        {"properties": {"n": {"enum": [1, None]}}},
        {"properties": {"prompt": {"maxItems": 8}, "n": {"maximum": 16}}},
    ]
}


class CompletionBody(_Sampled):
    """POST /v1/completions."""

    model_config = ConfigDict(json_schema_extra=_FEW)

    prompt: (
        Annotated[str, Field(min_length=1)]
        | Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=MAX_CHOICES)]
        | Annotated[list[Annotated[int, Field(ge=0), WHOLE]], Field(min_length=1)]
        | Annotated[
            list[Annotated[list[Annotated[int, Field(ge=0), WHOLE]], Field(min_length=1)]],
            Field(min_length=1, max_length=MAX_CHOICES),
        ]
    )
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=5), WHOLE] | None = None

    @property
    def count(self) -> int:
        """How many choices are asked for: so many for each prompt."""
        several = isinstance(self.prompt, list) and not isinstance(self.prompt[0], int)
        return (self.n or 1) * (len(self.prompt) if several else 1)
