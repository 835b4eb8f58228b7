"""What the link to an engine speaks of: the process, the store's claim on it, and how a link can stand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar

import grpc.aio

from seedbed.v1 import engine_pb2 as pb

if TYPE_CHECKING:
    from seedbed_server.gateway.ways import Way

__all__ = [
    "CALL_SECONDS",
    "HEARTBEAT_SECONDS",
    "RESTORE_SECONDS",
    "CallLost",
    "Child",
    "Claim",
    "ClaimFunction",
    "LinkError",
    "LinkState",
    "awaited",
    "connect",
]

T = TypeVar("T")
LinkState: TypeAlias = Literal["starting", "ready", "down"]

HEARTBEAT_SECONDS = 5.0
CALL_SECONDS = 30.0
RESTORE_SECONDS = 1800.0
MAX_MESSAGE = 512 * 2**20
"""Bytes: a whole journal in one call, also one of 10,000 members a population."""


class LinkError(RuntimeError):
    """The engine cannot serve this store, now or after another start; the message says what to do."""


class CallLost(Exception):
    """The channel was closed during a call; it may or may not have had its effect."""


class Child(Protocol):
    """The engine's process, as `seedbed_server.engine.process.EngineProcess` has it."""

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        ...

    @property
    def address(self) -> str:
        """Where it serves."""
        ...

    def start(self, timeout: float) -> None:
        """Starts it and returns when it serves."""
        ...

    def stop(self) -> None:
        """Ends it and all that it started."""
        ...


@dataclass(frozen=True)
class Claim:
    """What the store expects of an engine before it may serve."""

    term: int
    way: Way
    """To the version that is served."""
    recheck: Callable[[], Awaitable[bool]]
    """Looks at the snapshot of the way again. False: it was set aside, and another start goes another way."""


ClaimFunction: TypeAlias = Callable[[pb.DescribeResponse], Awaitable[Claim]]
"""Compares a loaded model with the store and says what to restore. Raises StoreMismatch, StoreError."""


async def awaited(call: Awaitable[T]) -> T:
    """Awaits a call to an engine. Raises CallLost where the link has closed its channel meanwhile.

    gRPC tells that by a CancelledError, which would end the task of one who was not cancelled at all.
    """
    try:
        return await call
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise CallLost("the engine was given up during the call") from None


def connect(address: str) -> grpc.aio.Channel:
    """A channel to an engine; large enough for a whole journal."""
    return grpc.aio.insecure_channel(
        address,
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE),
            ("grpc.max_send_message_length", MAX_MESSAGE),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
            # A channel to the engine before, on the same socket, must not lend this one its failures.
            ("grpc.use_local_subchannel_pool", 1),
        ],
    )
