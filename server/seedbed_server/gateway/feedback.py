"""POST /v1/feedback: a reward for an episode or one of its completions."""

from __future__ import annotations

import json
import math
import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seedbed_server.gateway import verdicts
from seedbed_server.gateway.answers import RewardAnswer, RewardError
from seedbed_server.gateway.association import HEADER, Named, agreed, identify, other_episode
from seedbed_server.gateway.bodies import read_body
from seedbed_server.gateway.document import answers, body
from seedbed_server.gateway.errors import bad_request, error_body, json_response
from seedbed_server.gateway.shapes import WHOLE
from seedbed_server.gateway.spoken import shown, spoken
from seedbed_server.gateway.state import gateway_of
from seedbed_server.learner import Given

__all__ = ["Feedback", "router"]

MAX_BODY = 1 << 20

router = APIRouter()

Id = Annotated[str, Field(min_length=1, max_length=256)]


def _given(name: str) -> dict[str, Any]:
    return {"required": [name], "properties": {name: {"type": "string"}}}


# What the document says of fields that need one another.
_TARGET: Any = {"anyOf": [_given("episode_id"), _given("completion_id")]}
_CHOICE: Any = {"anyOf": [{"properties": {"choice": {"type": "null"}}}, _given("completion_id")]}


class EpisodeFeedback(BaseModel):
    """One reward below the base URL of an episode, which is its target if no completion is named."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"allOf": [_CHOICE]})

    completion_id: Id | None = None
    choice: Annotated[int, Field(ge=0, lt=2**31), WHOLE] | None = None
    reward: float
    reward_id: Id | None = None
    feedback_text: Annotated[str, Field(max_length=65536)] | None = None


class Feedback(EpisodeFeedback):
    """One reward. Fields that are not listed are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"allOf": [_CHOICE, _TARGET]})

    episode_id: Id | None = None


ANSWERS = answers(
    RewardAnswer,
    *(400, 401, 403, 404, 408, 409, 413, 429, 500, 503),
    special={404: RewardError, 409: RewardError},
)


@router.post("/v1/feedback", responses=ANSWERS, openapi_extra=body(Feedback))
async def post_feedback(request: Request) -> Response:
    """Keeps a reward and says what becomes of it; answered after it is on disk."""
    return await _keep(request, None)


@router.post("/v1/episodes/{id}/v1/feedback", responses=ANSWERS, openapi_extra=body(EpisodeFeedback))
async def post_episode_feedback(request: Request, id: str = Path()) -> Response:  # noqa: A002
    """The same, below the base URL of an episode, which needs not be named again."""
    return await _keep(request, id)


async def _keep(request: Request, in_path: str | None) -> Response:
    gateway = gateway_of(request)
    data = await read_body(request, MAX_BODY)
    header = request.headers.get(HEADER)
    named = () if header is None else (Named(HEADER, f"the header {HEADER}", header),)
    identity = await identify(request.headers, in_path, named, gateway.leases.cache)
    within = identity.episode_id
    posted = parse(data, within)
    if within is not None and posted.episode_id not in (None, within):
        assert posted.episode_id is not None
        if identity.session is not None:
            raise other_episode(within, posted.episode_id)
        source = "the base URL" if in_path is not None else f"the header {HEADER}"
        agreed((Named("id", source, within), Named("episode_id", "the body", posted.episode_id)))
    given = Given(posted.episode_id, posted.completion_id, posted.reward, posted.reward_id, posted.choice)
    now = time.time()
    decided = await gateway.store.write(
        lambda connection: verdicts.decide(connection, given, posted.feedback_text, now, within)
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


def parse(data: bytes, within: str | None = None) -> Feedback:
    """The posted reward, which is for the episode `within` if it names no target.

    Raises ApiError 400 that names the field, the value and the remedy.
    """
    try:
        # The standard parser takes NaN and Infinity, so that the message can name the field they are in.
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"body: it is not JSON ({error}); send one JSON object") from None
    if not isinstance(values, dict):
        raise bad_request(f"body: {type(values).__name__} given; send one JSON object")
    reward = values.get("reward")
    if "reward" not in values or reward is None:
        raise bad_request("reward: it is missing; send a finite number", param="reward")
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        raise bad_request(f"reward: {shown(reward)} is not a number; send a finite number", param="reward")
    try:
        values["reward"] = float(reward)
    except OverflowError:
        values["reward"] = math.inf
    if not math.isfinite(values["reward"]):
        raise bad_request(
            f"reward: {shown(reward)} is not finite; send a finite number, or nothing if there is no reward",
            param="reward",
        )
    try:
        posted = Feedback.model_validate(values)
    except ValidationError as error:
        raise spoken(error, values) from None
    if posted.choice is not None and posted.completion_id is None:
        raise bad_request(
            f"completion_id: it is missing, and choice {posted.choice} was given; name the completion of the "
            "choice",
            param="completion_id",
        )
    if posted.episode_id is None and posted.completion_id is None:
        if within is None:
            raise bad_request(
                "episode_id: neither it nor completion_id is given; send one of the two", param="episode_id"
            )
        return posted.model_copy(update={"episode_id": within})
    return posted
