"""What leases speak of: wishes, terms, the lease itself, and when an episode has ended."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from seedbed_server.gateway.errors import ApiError, bad_request

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from seedbed_server.store.rows import EpisodeRow

__all__ = [
    "Counts",
    "Lease",
    "Terms",
    "Wish",
    "conflict",
    "ended_how",
    "has_ended",
    "unknown_episode",
    "with_metadata",
]

MAX_NAMES = 64
"""Of an episode's metadata, which its requests add to."""


@dataclass(frozen=True)
class Wish:
    """What a request says about its episode."""

    live: bool
    """The unperturbed live model is asked for."""
    episode_id: str | None = None
    group: str | None = None
    explore: bool | None = None
    """Whether a new episode explores; None: the server's share decides."""
    client: bytes | None = None
    """Digest of the API key under which a new episode is found again; None for one that has an id."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What the request says of itself; kept with the episode."""


@dataclass(frozen=True)
class Terms:
    """What an agent that opens an episode may say of it."""

    key_hash: bytes
    metadata: dict[str, str]
    expires_at: float


@dataclass
class Counts:
    """Episodes and requests since the start of this gateway."""

    opened: int = 0
    """Episodes, by POST /v1/episodes."""
    implicit: int = 0
    """Episodes, by a request that named none."""
    continued: int = 0
    """Requests that named none and went on with an implicit episode."""
    implicit_rewarded: int = 0


@dataclass(frozen=True)
class Lease:
    """One completion of an episode, before it runs."""

    episode: EpisodeRow
    completion_id: str
    is_new: bool
    """Whether this request opened the episode."""
    stored: asyncio.Future[None]
    """Done when episode and completion are on disk; nothing may be answered before."""


def has_ended(episode: EpisodeRow, now: float) -> bool:
    """Whether an episode takes no more completions."""
    return episode.status != "open" or (episode.expires_at is not None and episode.expires_at <= now)


def ended_how(episode: EpisodeRow) -> str:
    """The status of an episode that has ended, whether anybody has written it down yet or not."""
    return "expired" if episode.status == "open" else episode.status


def conflict(message: str, param: str, code: str) -> ApiError:
    """409 for what an episode cannot do, now or later: clients are told not to ask again."""
    return ApiError(409, message, param=param, code=code, headers={"x-should-retry": "false"})


def unknown_episode(episode_id: str) -> ApiError:
    """404 for an episode that never was."""
    return ApiError(
        404,
        f"episode_id: {episode_id!r} is not known; leave it out to open an episode, and use the one that the "
        "answer names",
        param="seedbed.episode_id",
        code="episode_not_found",
    )


def with_metadata(episode: EpisodeRow, said: Mapping[str, str]) -> EpisodeRow:
    """The episode with what one more of its requests says; the episode itself where that is nothing new.

    Raises ApiError 400 if it would have too many names.
    """
    kept = episode.metadata or {}
    merged = {**kept, **said}
    if merged == kept:
        return episode
    if len(merged) > MAX_NAMES:
        raise bad_request(
            f"metadata: the episode {episode.id} would have {len(merged)} names; use at most {MAX_NAMES} "
            "different ones within an episode",
            param="metadata",
        )
    return replace(episode, metadata=merged)
