"""POST /v1/feedback: rewards for episodes, completions and choices, one by one or many at once."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Path, Request, Response

from seedbed_server.gateway import verdicts
from seedbed_server.gateway.answers import RewardAnswer, RewardError, RewardsAnswer
from seedbed_server.gateway.association import HEADER, Named, identify
from seedbed_server.gateway.bodies import read_body
from seedbed_server.gateway.document import answers, body
from seedbed_server.gateway.errors import error_body, json_response
from seedbed_server.gateway.feedback_bodies import (
    EpisodeFeedback,
    Feedback,
    FeedbackBatch,
    check_within,
    parse,
    parse_batch,
    within_bounds,
)
from seedbed_server.gateway.ids import minted_at
from seedbed_server.gateway.state import gateway_of

if TYPE_CHECKING:
    from seedbed_server.gateway.association import Identity
    from seedbed_server.gateway.state import Gateway
    from seedbed_server.gateway.verdicts import Decided, Posted

__all__ = ["router"]

MAX_BODY = 1 << 20
MAX_BATCH_BODY = 8 << 20
WAIT_SECONDS = 2.0
"""How old an id may be that is not on record yet: its completion may be on its way to the disk."""

router = APIRouter()

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
    posted = parse_batch(data, gateway.plan.rewards.bounds, identity)
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
    check_within(feedback, identity, in_path)
    posted = within_bounds(feedback, gateway.plan.rewards.bounds)
    (decided,) = await _decide(gateway, [posted], identity.episode_id)
    status, answer = _answer(posted, decided)
    return json_response(status, answer, {"x-should-retry": "false"} if status == 409 else None)


async def _identity(request: Request, in_path: str | None, gateway: Gateway) -> Identity:
    header = request.headers.get(HEADER)
    named = () if header is None else (Named(HEADER, f"the header {HEADER}", header),)
    return await identify(request.headers, in_path, named, gateway.leases.cache)


async def _decide(gateway: Gateway, posted: list[Posted], within: str | None) -> list[Decided]:
    """What became of the rewards, after the commit that holds them.

    Those that have overtaken their completion wait for it, no longer than its id is new.
    """
    rules = gateway.plan.rewards
    decided: dict[int, Decided] = {}
    waiting = list(range(len(posted)))
    while waiting:
        places, now = tuple(waiting), time.time()

        some = [posted[place] for place in places]
        job = partial(verdicts.decide, posted=some, rules=rules, now=now, within=within)
        decided |= dict(zip(places, await gateway.store.write(job), strict=True))
        waiting = [place for place in places if _may_come(posted[place], decided[place], now)]
        for place in places:
            if place not in waiting:
                _note(gateway, decided[place])
        if waiting:
            await _come(gateway, [posted[place] for place in waiting])
    return [decided[place] for place in range(len(posted))]


async def _come(gateway: Gateway, posted: list[Posted]) -> None:
    """Returns when one of the targets is on record, or when all of them have had their time."""
    job = partial(verdicts.any_known, posted=posted)
    while any(_is_new(one, time.time()) for one in posted):
        await asyncio.sleep(0.05)
        if await gateway.store.read(job):
            return


def _may_come(posted: Posted, decided: Decided, now: float) -> bool:
    return decided.verdict.result == "unknown" and _is_new(posted, now)


def _is_new(posted: Posted, now: float) -> bool:
    """Whether the id is so new that what it names may still be on its way to the disk."""
    name = posted.given.completion_id or posted.given.episode_id
    at = None if name is None else minted_at(name)
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
