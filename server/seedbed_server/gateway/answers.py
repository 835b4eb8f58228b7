"""What this server answers, as schemas for its OpenAPI document. What SGLang answers is OpenAI's own."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "ChatAnswer",
    "EpisodeAnswer",
    "ErrorAnswer",
    "HealthAnswer",
    "LearningAnswer",
    "ModelAnswer",
    "ModelsAnswer",
    "OpenedEpisodeAnswer",
    "ReadyAnswer",
    "ResponseAnswer",
    "RewardAnswer",
    "RewardError",
    "RollbackAnswer",
    "StatusAnswer",
    "TextAnswer",
    "UpdatesAnswer",
]

RewardResult: TypeAlias = Literal["accepted", "duplicate", "replaced", "late", "conflict", "unknown"]


class _Open(BaseModel):
    """OpenAI may add to it."""

    model_config = ConfigDict(extra="allow")


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class About(_Closed):
    """Where an answer came from; null throughout for the live model."""

    episode_id: str
    completion_id: str
    version: int
    last_version: int | None = None
    population: int | None
    member: int | None
    seed: str | None
    sigma: float | None
    sign: Literal[1, -1] | None


class _Answer(_Open):
    id: str
    model: str
    seedbed: About


class ChatAnswer(_Answer):
    """A chat completion; a stream has one object of the same kind in each event."""

    object: Literal["chat.completion"]
    created: int
    choices: list[dict[str, Any]]
    usage: dict[str, Any]


class TextAnswer(_Answer):
    """A text completion."""

    object: Literal["text_completion"]
    created: int
    choices: list[dict[str, Any]]
    usage: dict[str, Any]


class ResponseAnswer(_Answer):
    """A response."""

    object: Literal["response"]
    created_at: float
    status: Literal["completed", "incomplete"]
    output: list[dict[str, Any]]


class ErrorDetail(_Closed):
    """What went wrong, and what would do."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(_Closed):
    """Every error."""

    error: ErrorDetail


class ServedModel(_Closed):
    """What is true of the loaded model."""

    explores: bool
    version: int
    context_length: int
    dtype: str
    tools: bool
    tool_call_parser: str | None
    reasoning: bool
    reasoning_parser: str | None


class ModelAnswer(_Closed):
    """One model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["seedbed"]
    seedbed: ServedModel


class ModelsAnswer(_Closed):
    """All models."""

    object: Literal["list"]
    data: list[ModelAnswer]


class EpisodeAnswer(_Closed):
    """An episode."""

    id: str
    object: Literal["episode"]
    status: Literal["open", "closed", "expired", "dropped"]
    model: str | None
    base_url: str
    explores: bool
    version: int | None
    population: int | None
    member: int | None
    seed: str | None
    sign: Literal[1, -1] | None
    sigma: float | None
    group: str | None
    context: None
    metadata: dict[str, str]
    implicit: bool
    completions: int
    reward: float | None
    created_at: int
    expires_at: int | None


class OpenedEpisodeAnswer(EpisodeAnswer):
    """A new episode, with the key that is shown this once."""

    api_key: str


class RewardAnswer(_Closed):
    """What becomes of a reward."""

    result: RewardResult
    episode_id: str | None
    member: int | None
    version: int | None
    message: str


class RewardError(RewardAnswer):
    """The same for a reward that is not kept."""

    error: ErrorDetail


class RewardsAnswer(_Closed):
    """What becomes of each of many rewards, in their order."""

    object: Literal["list"]
    data: list[RewardAnswer | RewardError]


class Pause(_Closed):
    """Why nothing is explored."""

    at: float
    by: Literal["operator", "guard"]
    reason: str
    roll_back_to: int | None


class LearningAnswer(_Closed):
    """Whether learning goes on."""

    object: Literal["learning"]
    paused: Pause | None


class StepAnswer(_Closed):
    """What came of a population."""

    object: Literal["step"]
    population: int
    outcome: str
    version: int | None


class HealthAnswer(_Closed):
    """The server runs."""

    status: Literal["ok"]


class ReadyAnswer(HealthAnswer):
    """Completions would be answered now."""

    version: int


class StatusAnswer(_Open):
    """How far everything has got."""

    model: str | None
    version: int
    digest: str | None
    population: dict[str, Any] | None
    sigma: float | None
    alpha: float
    last_update: dict[str, Any] | None
    last_population: dict[str, Any] | None
    learning: dict[str, Any]
    episodes: dict[str, int]
    tokens: dict[str, int]
    engine: Literal["ready", "starting", "down"]
    uptime_seconds: Annotated[float, Field(ge=0)]
    warnings: list[str]


class RollbackAnswer(_Closed):
    """A new version with the weights of an older one."""

    object: Literal["rollback"]
    status: Literal["done", "pending"]
    version: int
    to_version: int
    digest: str
    reason: str


class UpdatesAnswer(_Closed):
    """Published updates and rollbacks, oldest first."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    has_more: bool
