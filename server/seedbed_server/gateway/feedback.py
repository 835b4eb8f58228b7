"""POST /v1/feedback: a reward for an episode or one of its completions."""

from __future__ import annotations

import json
import math
import time
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from seedbed_server.gateway import ledger
from seedbed_server.gateway.bodies import read_body
from seedbed_server.gateway.errors import bad_request, error_body, json_response
from seedbed_server.gateway.state import gateway_of
from seedbed_server.learner import Given

__all__ = ["Feedback", "router"]

MAX_BODY = 1 << 20

router = APIRouter()

Id = Annotated[str, Field(min_length=1, max_length=256)]


class Feedback(BaseModel):
    """One reward. Fields that are not listed are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    episode_id: Id | None = None
    completion_id: Id | None = None
    reward: float
    reward_id: Id | None = None
    feedback_text: Annotated[str, Field(max_length=65536)] | None = None

    @model_validator(mode="after")
    def _has_target(self) -> Feedback:
        if self.episode_id is None and self.completion_id is None:
            raise ValueError("a target is missing")
        return self


@router.post(
    "/v1/feedback",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": Feedback.model_json_schema()}},
        }
    },
)
async def post_feedback(request: Request) -> Response:
    """Keeps a reward and says what becomes of it; answered after it is on disk."""
    gateway = gateway_of(request)
    posted = parse(await read_body(request, MAX_BODY))
    given = Given(posted.episode_id, posted.completion_id, posted.reward, posted.reward_id)
    now = time.time()
    decided = await gateway.store.write(
        lambda connection: ledger.decide(connection, given, posted.feedback_text, now)
    )
    verdict, episode = decided.verdict, decided.episode
    gateway.metrics.rewards.labels(verdict.result).inc()
    if episode is not None and decided.total is not None:
        gateway.leases.note_reward(episode, decided.total)
    answer: dict[str, Any] = {
        "result": verdict.result,
        "episode_id": posted.episode_id if episode is None else episode.id,
        "member": None if episode is None else episode.member,
        "version": decided.version,
        "message": verdict.message,
    }
    if verdict.result == "unknown":
        param = "episode_id" if posted.completion_id is None else "completion_id"
        answer |= error_body(404, verdict.message, param, "unknown_target")
        return json_response(404, answer)
    if verdict.result == "conflict":
        answer |= error_body(409, verdict.message, "reward_id", "reward_conflict")
        return json_response(409, answer, {"x-should-retry": "false"})
    return json_response(200, answer)


def parse(body: bytes) -> Feedback:
    """The posted reward. Raises ApiError 400 that names the field, the value and the remedy."""
    try:
        # The standard parser takes NaN and Infinity, so that the message can name the field they are in.
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"body: it is not JSON ({error}); send one JSON object") from None
    if not isinstance(values, dict):
        raise bad_request(f"body: {type(values).__name__} given; send one JSON object")
    reward = values.get("reward")
    if "reward" not in values or reward is None:
        raise bad_request("reward: it is missing; send a finite number", param="reward")
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        shown = _shown(reward)
        raise bad_request(f"reward: {shown} is not a number; send a finite number", param="reward")
    try:
        values["reward"] = float(reward)
    except OverflowError:
        values["reward"] = math.inf
    if not math.isfinite(values["reward"]):
        raise bad_request(
            f"reward: {_shown(reward)} is not finite; send a finite number, or nothing if there is no reward",
            param="reward",
        )
    try:
        return Feedback.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:
            raise bad_request(
                "episode_id: neither it nor completion_id is given; send one of the two", param="episode_id"
            ) from None
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise bad_request(
                f"{name}: {_shown(first['input'])} was given and there is no such field; "
                f"use {', '.join(Feedback.model_fields)}",
                param=name,
            ) from None
        raise bad_request(
            f"{name}: {_shown(first['input'])} cannot be used: {first['msg']}", param=name
        ) from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "..."
