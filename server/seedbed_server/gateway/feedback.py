"""POST /v1/feedback: rewards for episodes, completions and choices, one by one or many at once."""

from __future__ import annotations

import asyncio
import json
import math
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seedbed_server.gateway import verdicts
from seedbed_server.gateway.answers import RewardAnswer, RewardError, RewardsAnswer
from seedbed_server.gateway.association import HEADER, Named, agreed, identify, other_episode
from seedbed_server.gateway.bodies import read_body
from seedbed_server.gateway.document import answers, body
from seedbed_server.gateway.errors import ApiError, bad_request, error_body, json_response
from seedbed_server.gateway.ids import minted_at
from seedbed_server.gateway.shapes import WHOLE
from seedbed_server.gateway.spoken import shown, spoken
from seedbed_server.gateway.state import Gateway, gateway_of
from seedbed_server.gateway.verdicts import Posted
from seedbed_server.learner import Given, bounded

if TYPE_CHECKING:
    import sqlalchemy as sa

    from seedbed_server.gateway.association import Identity
    from seedbed_server.gateway.plan import RewardRules
    from seedbed_server.gateway.verdicts import Decided

__all__ = ["MAX_REWARDS", "Feedback", "FeedbackBatch", "router"]

MAX_BODY = 1 << 20
MAX_BATCH_BODY = 8 << 20
MAX_REWARDS = 64
WAIT_SECONDS = 2.0
"""How old an id may be that is not on record yet: its completion may be on its way to the disk."""

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
    final: bool | None = Field(
        None,
        description="false: more rewards follow for the episode, which counts when they are there, or "
        "when it ends. true: none follow; the episode ends.",
    )


class Feedback(EpisodeFeedback):
    """One reward. Fields that are not listed are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"allOf": [_CHOICE, _TARGET]})

    episode_id: Id | None = None


class FeedbackBatch(BaseModel):
    """Many rewards. They are judged in their order and kept together."""

    model_config = ConfigDict(extra="forbid", strict=True)

    rewards: Annotated[list[Feedback], Field(min_length=1, max_length=MAX_REWARDS)]


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


@router.post(
    "/v1/feedback/batch",
    responses=answers(RewardsAnswer, 400, 401, 403, 408, 413, 429, 500, 503),
    openapi_extra=body(FeedbackBatch),
)
async def post_feedback_batch(request: Request) -> Response:
    """Keeps up to 64 rewards in one commit and says what becomes of each, in their order.

    A field that cannot be used refuses all of them.
    """
    gateway = gateway_of(request)
    data = await read_body(request, MAX_BATCH_BODY)
    identity = await _identity(request, None, gateway)
    posted = parse_batch(data, gateway, identity)
    decided = await _decide(gateway, posted, identity.episode_id)
    return json_response(
        200,
        {"object": "list", "data": [_answer(*pair)[1] for pair in zip(posted, decided, strict=True)]},
    )


async def _keep(request: Request, in_path: str | None) -> Response:
    gateway = gateway_of(request)
    data = await read_body(request, MAX_BODY)
    identity = await _identity(request, in_path, gateway)
    feedback = parse(data, identity.episode_id)
    _check_within(feedback, identity, in_path)
    posted = _posted(feedback, gateway)
    (decided,) = await _decide(gateway, [posted], identity.episode_id)
    status, answer = _answer(posted, decided)
    return json_response(status, answer, {"x-should-retry": "false"} if status == 409 else None)


async def _identity(request: Request, in_path: str | None, gateway: Gateway) -> Identity:
    header = request.headers.get(HEADER)
    named = () if header is None else (Named(HEADER, f"the header {HEADER}", header),)
    return await identify(request.headers, in_path, named, gateway.leases.cache)


def _check_within(feedback: Feedback, identity: Identity, in_path: str | None) -> None:
    """Raises ApiError for a target outside the episode that key, base URL or header name."""
    within = identity.episode_id
    if within is None or feedback.episode_id in (None, within):
        return
    assert feedback.episode_id is not None
    if identity.session is not None:
        raise other_episode(within, feedback.episode_id)
    source = "the base URL" if in_path is not None else f"the header {HEADER}"
    agreed((Named("id", source, within), Named("episode_id", "the body", feedback.episode_id)))


def _posted(feedback: Feedback, gateway: Gateway) -> Posted:
    """The reward within the server's bounds. Raises ApiError 400 for one that they refuse."""
    try:
        reward = bounded(feedback.reward, gateway.plan.rewards.bounds)
    except ValueError as error:
        raise bad_request(str(error), param="reward", code="out_of_bounds") from None
    given = Given(feedback.episode_id, feedback.completion_id, reward, feedback.reward_id, feedback.choice)
    return Posted(given, feedback.feedback_text, feedback.final)


async def _decide(gateway: Gateway, posted: list[Posted], within: str | None) -> list[Decided]:
    """What became of the rewards, after the commit that holds them.

    Those that have overtaken their completion wait for it, no longer than its id is new.
    """
    rules = gateway.plan.rewards
    decided: dict[int, Decided] = {}
    waiting = list(range(len(posted)))
    while waiting:
        places, now = tuple(waiting), time.time()

        job = partial(_judge, [posted[place] for place in places], rules, now, within)
        decided |= dict(zip(places, await gateway.store.write(job), strict=True))
        waiting = [place for place in places if _may_come(posted[place], decided[place], now)]
        for place in places:
            if place not in waiting:
                _note(gateway, decided[place])
        if waiting:
            await asyncio.sleep(0.05)
    return [decided[place] for place in range(len(posted))]


def _judge(
    posted: list[Posted], rules: RewardRules, now: float, within: str | None, connection: sa.Connection
) -> list[Decided]:
    return [verdicts.decide(connection, one, rules, now, within) for one in posted]


def _may_come(posted: Posted, decided: Decided, now: float) -> bool:
    name = posted.given.completion_id or posted.given.episode_id
    if decided.verdict.result != "unknown" or name is None:
        return False
    at = minted_at(name)
    return at is not None and -WAIT_SECONDS < now - at < WAIT_SECONDS


def _note(gateway: Gateway, decided: Decided) -> None:
    """Tells everybody in memory what is on disk."""
    gateway.metrics.rewards.labels(decided.verdict.result).inc()
    leases, episode = gateway.leases, decided.episode
    if episode is not None and decided.ended:
        leases.cache.put(episode)
    if decided.counted is not None:
        leases.note(decided.counted)
    if decided.pause is not None:
        leases.paused = decided.pause
        leases.poke()


def _answer(posted: Posted, decided: Decided) -> tuple[int, dict[str, Any]]:
    """Status and body for one reward."""
    given, verdict, episode = posted.given, decided.verdict, decided.episode
    answer: dict[str, Any] = {
        "result": verdict.result,
        "episode_id": given.episode_id if episode is None else episode.id,
        "member": None if episode is None else episode.member,
        "version": decided.version,
        "message": verdict.message,
    }
    if verdict.result == "unknown":
        param = "episode_id" if given.completion_id is None else "completion_id"
        return 404, answer | error_body(404, verdict.message, param, "unknown_target")
    if verdict.result == "conflict":
        return 409, answer | error_body(409, verdict.message, "reward_id", "reward_conflict")
    return 200, answer


def parse(data: bytes, within: str | None = None) -> Feedback:
    """The posted reward, which is for the episode `within` if it names no target.

    Raises ApiError 400 that names the field, the value and the remedy.
    """
    return _parsed(_object(data), within)


def parse_batch(data: bytes, gateway: Gateway, identity: Identity) -> list[Posted]:
    """The posted rewards. Raises ApiError 400 that names place, field, value and remedy."""
    values = _object(data)
    for name in values:
        if name != "rewards":
            raise bad_request(f"{name}: there is no such field; send the list `rewards`", param=name)
    items = values.get("rewards")
    if not isinstance(items, list) or not 1 <= len(items) <= MAX_REWARDS:
        raise bad_request(f"rewards: send a list of 1 to {MAX_REWARDS} rewards", param="rewards")
    posted = []
    for place, item in enumerate(items):
        try:
            if not isinstance(item, dict):
                raise bad_request(f"{shown(item)} is no reward; send an object")
            feedback = _parsed(item, identity.episode_id)
            _check_within(feedback, identity, None)
            posted.append(_posted(feedback, gateway))
        except ApiError as error:
            param = f"rewards.{place}" + (f".{error.param}" if error.param else "")
            raise ApiError(
                error.status, f"rewards.{place}: {error.message}", param=param, code=error.code
            ) from None
    return posted


def _object(data: bytes) -> dict[str, Any]:
    try:
        # The standard parser takes NaN and Infinity, so that the message can name the field they are in.
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"body: it is not JSON ({error}); send one JSON object") from None
    if not isinstance(values, dict):
        raise bad_request(f"body: {type(values).__name__} given; send one JSON object")
    return values


def _parsed(values: dict[str, Any], within: str | None) -> Feedback:
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
