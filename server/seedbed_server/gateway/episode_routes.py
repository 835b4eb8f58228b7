"""/v1/episodes: opening, reading and closing episodes that agents work in."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seedbed_server.gateway import keys
from seedbed_server.gateway.answers import EpisodeAnswer, OpenedEpisodeAnswer
from seedbed_server.gateway.association import other_episode, session_of
from seedbed_server.gateway.bodies import read_body
from seedbed_server.gateway.document import answers, body
from seedbed_server.gateway.errors import bad_request, json_response
from seedbed_server.gateway.lease_types import Terms, Wish, ended_how, has_ended, unknown_episode
from seedbed_server.gateway.shapes import WHOLE, Metadata, Text
from seedbed_server.gateway.spoken import spoken
from seedbed_server.gateway.state import gateway_of
from seedbed_server.gateway.totals import totals
from seedbed_server.store import episodes, rewards

if TYPE_CHECKING:
    import sqlalchemy as sa

    from seedbed_server.gateway.state import Gateway
    from seedbed_server.store.rows import EpisodeRow

__all__ = ["EpisodeTerms", "router"]

MAX_BODY = 1 << 20
MAX_SECONDS = 30 * 86400
DEFAULT_SECONDS = 86400

router = APIRouter()


class EpisodeTerms(BaseModel):
    """What may be said of a new episode. Fields that are not listed are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    group: Text | None = Field(None, description="The task that the episode works on.")
    metadata: Metadata | None = Field(None, description="Kept with the episode.")
    explore: bool | None = Field(
        None, description="Whether a member answers; left out: the server's share decides."
    )
    expires_in: Annotated[int, Field(ge=1, le=MAX_SECONDS), WHOLE] | None = Field(
        None, description=f"Seconds from now; {DEFAULT_SECONDS} if it is left out."
    )
    context: None = Field(None, description="No contexts are defined on this server.")


@router.post(
    "/v1/episodes",
    status_code=201,
    responses=answers(OpenedEpisodeAnswer, 400, 408, 413, 429, 500, 503, status=201),
    openapi_extra=body(EpisodeTerms, required=False),
)
async def open_episode(request: Request) -> Response:
    """Opens an episode; the answer has its base URL and its API key, which is shown this once."""
    gateway = gateway_of(request)
    terms = parse(await read_body(request, MAX_BODY))
    _ = gateway.link.ready
    now = time.time()
    key, key_hash = keys.mint()
    episode = await gateway.leases.open(
        Wish(live=False, group=terms.group, explore=terms.explore),
        Terms(key_hash, terms.metadata or {}, now + (terms.expires_in or DEFAULT_SECONDS)),
    )
    gateway.metrics.episodes.inc()
    shown = _shown(gateway, request, episode, 0, None)
    return json_response(201, {**shown, "api_key": key})


@router.get("/v1/episodes/{id}", responses=answers(EpisodeAnswer, 401, 403, 404, 503))
async def get_episode(request: Request, id: str = Path()) -> Response:  # noqa: A002
    """How an episode stands."""
    gateway = gateway_of(request)
    return await _answer(gateway, request, await _allowed(gateway, request, id))


@router.delete("/v1/episodes/{id}", responses=answers(EpisodeAnswer, 401, 403, 404, 429, 503))
async def close_episode(request: Request, id: str = Path()) -> Response:  # noqa: A002
    """Closes an episode: it takes no more completions, and still takes rewards."""
    gateway = gateway_of(request)
    episode = await _allowed(gateway, request, id)
    return await _answer(gateway, request, await gateway.leases.close(episode))


def parse(data: bytes) -> EpisodeTerms:
    """The posted terms; no body at all is an episode without any. Raises ApiError 400."""
    try:
        values = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise bad_request(f"body: it is not JSON ({error}); send one JSON object, or nothing") from None
    if not isinstance(values, dict):
        raise bad_request(f"body: {type(values).__name__} given; send one JSON object, or nothing")
    if values.get("context") is not None:
        raise bad_request("context: no contexts are defined on this server; leave it out", param="context")
    try:
        return EpisodeTerms.model_validate(values)
    except ValidationError as error:
        raise spoken(error, values) from None


async def _allowed(gateway: Gateway, request: Request, episode_id: str) -> EpisodeRow:
    """The episode of the path. Raises ApiError 401, 403 or 404."""
    session = await session_of(request.headers, gateway.leases.cache)
    if session is not None and session.id != episode_id:
        raise other_episode(session.id, episode_id)
    episode = await gateway.leases.cache.by_id(episode_id)
    if episode is None:
        raise unknown_episode(episode_id)
    return episode


async def _answer(gateway: Gateway, request: Request, episode: EpisodeRow) -> Response:
    def facts(connection: sa.Connection) -> tuple[int, float | None]:
        rows = rewards.of_episode(connection, episode.id)
        rewarded = totals(connection, rows, gateway.plan.rewards.aggregation)
        return episodes.count_completions(connection, episode.id), rewarded.get(episode.id)

    completions, reward = await gateway.store.read(facts)
    return json_response(200, _shown(gateway, request, episode, completions, reward))


def _shown(
    gateway: Gateway, request: Request, episode: EpisodeRow, completions: int, reward: float | None
) -> dict[str, Any]:
    """An episode as users see it."""
    base = str(request.base_url).rstrip("/")
    return {
        "id": episode.id,
        "object": "episode",
        "status": ended_how(episode) if has_ended(episode, time.time()) else "open",
        "model": gateway.model,
        "base_url": f"{base}/v1/episodes/{episode.id}/v1",
        "explores": episode.member is not None,
        "version": episode.version,
        "population": episode.population,
        "member": episode.member,
        "seed": None if episode.seed is None else str(episode.seed),
        "sign": None if episode.sigma is None else (1 if episode.sigma > 0 else -1),
        "sigma": None if episode.sigma is None else abs(episode.sigma),
        "group": episode.group,
        "context": None,
        "metadata": episode.metadata or {},
        "implicit": episode.implicit,
        "completions": completions,
        "reward": reward,
        "created_at": int(episode.created_at),
        "expires_at": None if episode.expires_at is None else int(episode.expires_at),
    }
