"""What the handlers share: one gateway, from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from seedbed_server.gateway.engine_link import EngineLink
from seedbed_server.gateway.leases import Leases
from seedbed_server.gateway.metrics import Metrics
from seedbed_server.gateway.plan import plan_from
from seedbed_server.gateway.updates import Updates

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import Request

    from seedbed_server.config import ServeSettings
    from seedbed_server.gateway.link_types import Child
    from seedbed_server.store import Store

__all__ = ["Gateway", "gateway_of"]


class Gateway:
    """Store, leases, updates and the link to the engine of one server."""

    def __init__(self, settings: ServeSettings, store: Store, make_child: Callable[[], Child]) -> None:
        self.settings = settings
        self.store = store
        self.started = time.monotonic()
        self.created = time.time()
        self.metrics = Metrics()
        self.plan = plan_from(settings)
        self.leases = Leases(store, settings.hold_seconds)
        self.updates = Updates(store, self.leases, self.plan, self.metrics, settings.model_dump(mode="json"))

        def counted() -> Child:
            self.metrics.engine_starts.inc()
            return make_child()

        self.link = EngineLink(counted, self.updates.claim, start_seconds=settings.start_seconds)
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.in_flight = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Starts the engine and the update loop; returns at once."""
        self._tasks = [
            asyncio.create_task(self.link.run(), name="engine-link"),
            asyncio.create_task(self.updates.run(self.link), name="updates"),
        ]

    async def stop(self) -> None:
        """Ends the update loop, then the engine, then the store. What is acknowledged is on disk already."""
        for task in reversed(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        self._tasks = []
        await asyncio.to_thread(self.store.close)

    @property
    def model(self) -> str | None:
        """The name of the loaded model, or None before the first start."""
        return None if self.link.loaded is None else self.link.loaded.model


def gateway_of(request: Request) -> Gateway:
    """The gateway behind a request."""
    gateway: Gateway = request.app.state.gateway
    return gateway
