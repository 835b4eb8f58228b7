"""What an answer says of where it came from, and what a call that failed means for the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from seedbed_server.gateway.errors import ApiError, busy, unavailable

if TYPE_CHECKING:
    import grpc.aio

    from seedbed_server.gateway.engine_link import EngineLink
    from seedbed_server.gateway.lease_types import Lease

__all__ = ["about", "failure", "label_headers"]


def label_headers(lease: Lease, version: int) -> dict[str, str]:
    """Episode, completion, version, member and seed, for clients that read no bodies."""
    episode = lease.episode
    values = {
        "x-seedbed-episode": episode.id,
        "x-seedbed-completion": lease.completion_id,
        "x-seedbed-version": version,
        "x-seedbed-member": episode.member,
        "x-seedbed-seed": episode.seed,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def about(lease: Lease, version: int, last_version: int | None) -> dict[str, Any]:
    """The same for bodies, under `seedbed`; `last_version` is told where the version moved meanwhile."""
    episode = lease.episode
    values: dict[str, Any] = {
        "episode_id": episode.id,
        "completion_id": lease.completion_id,
        "version": version,
        "population": episode.population,
        "member": episode.member,
        # A text: JavaScript's numbers end at 2^53.
        "seed": None if episode.seed is None else str(episode.seed),
        "sigma": None if episode.sigma is None else abs(episode.sigma),
        "sign": None if episode.sigma is None else (1 if episode.sigma > 0 else -1),
    }
    if last_version not in (None, version):
        values["last_version"] = last_version
    return values


def failure(link: EngineLink, error: grpc.aio.AioRpcError) -> ApiError:
    """What a call that failed means for the client."""
    details = error.details() or error.code().name
    match error.code():
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return busy(details, 5)
        case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.OUT_OF_RANGE:
            return ApiError(400, details)
        case grpc.StatusCode.UNIMPLEMENTED:
            return ApiError(501, details)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return ApiError(504, "the completion took longer than a request may; ask for fewer tokens")
    link.suspect()
    # Most likely it is gone, and the next one has yet to start.
    seconds = link.seconds_left
    return unavailable(f"the engine did not answer ({details}); try again in {seconds} s", seconds)
