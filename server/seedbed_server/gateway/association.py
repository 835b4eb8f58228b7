"""Which episode a request belongs to: what names one, in which order, and what happens if two differ."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seedbed_server.gateway import keys
from seedbed_server.gateway.errors import ApiError, bad_request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from seedbed_server.gateway.episode_cache import EpisodeCache
    from seedbed_server.store.rows import EpisodeRow

__all__ = ["HEADER", "Identity", "Named", "agreed", "identify", "other_episode", "session_of"]

HEADER = "x-seedbed-episode"


@dataclass(frozen=True)
class Named:
    """An episode that a request names."""

    param: str
    source: str
    """Where it is named, for people."""
    episode_id: str


@dataclass(frozen=True)
class Identity:
    """Who asks, and for which episode."""

    client: bytes
    """Tells API keys apart."""
    episode_id: str | None
    session: EpisodeRow | None
    """The episode of the session key, if the API key is one."""


def agreed(named: Sequence[Named]) -> str | None:
    """The episode that all of them name; None without any. Raises ApiError 400 that names two that differ."""
    for one, other in itertools.pairwise(named):
        if one.episode_id != other.episode_id:
            raise bad_request(
                f"{other.param}: {one.source} names the episode {one.episode_id!r} and {other.source} names "
                f"{other.episode_id!r}; send one of them",
                param=other.param,
                code="episode_conflict",
            )
    return named[0].episode_id if named else None


async def session_of(headers: Mapping[str, str], cache: EpisodeCache) -> EpisodeRow | None:
    """The episode of a session key; None for any other key, or none. Raises ApiError 401 for one that is not
    known.
    """
    key = keys.bearer(headers)
    if not keys.is_session(key):
        return None
    episode = await cache.by_key(keys.hash_of(key))
    if episode is None:
        raise ApiError(
            401,
            "authorization: this session key is not known; use the api_key that POST /v1/episodes gave",
            param="authorization",
            code="invalid_api_key",
        )
    return episode


async def identify(
    headers: Mapping[str, str], in_path: str | None, named: Sequence[Named], cache: EpisodeCache
) -> Identity:
    """Session key, base URL, body, header: the first that is there decides, and the others must agree.

    Raises ApiError: 400 for two that differ, 401 for a session key that is not known.
    """
    session = await session_of(headers, cache)
    found = [
        *([Named("authorization", "the session key", session.id)] if session is not None else []),
        *([Named("id", "the base URL", in_path)] if in_path is not None else []),
        *named,
    ]
    return Identity(keys.client_of(keys.bearer(headers)), agreed(found), session)


def other_episode(own: str, asked: str) -> ApiError:
    """403 for a session key that reaches beyond its episode."""
    return ApiError(
        403,
        f"episode_id: this session key belongs to the episode {own!r}, and {asked!r} was asked for; use the "
        "key of that episode, or one that is no session key",
        param="episode_id",
        code="other_episode",
    )
