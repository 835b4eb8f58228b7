"""What the handlers share: one gateway, from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import structlog

from seedbed_server.gateway.admission import Admission
from seedbed_server.gateway.conversations import KEEP_SECONDS, Conversations, unpacked
from seedbed_server.gateway.engine_link import EngineLink
from seedbed_server.gateway.leases import Leases
from seedbed_server.gateway.metrics import Metrics
from seedbed_server.gateway.plan import plan_from
from seedbed_server.gateway.request import COMPLETIONS
from seedbed_server.gateway.retries import Retries
from seedbed_server.gateway.snapshots import Snapshots
from seedbed_server.gateway.texts import Texts
from seedbed_server.gateway.updates import Updates
from seedbed_server.store import StoreError, episodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import Request

    from seedbed_server.config import ServeSettings
    from seedbed_server.gateway.link_types import Child
    from seedbed_server.gateway.request import Prepared
    from seedbed_server.store import Store

__all__ = ["Gateway", "gateway_of"]

log = structlog.get_logger(__name__)

EXPIRE_SECONDS = 1.0


class Gateway:
    """Store, leases, updates and the link to the engine of one server."""

    def __init__(self, settings: ServeSettings, store: Store, make_child: Callable[[], Child]) -> None:
        self.settings = settings
        self.store = store
        self.started = time.monotonic()
        self.created = time.time()
        self.metrics = Metrics()
        self.plan = plan_from(settings)
        self.leases = Leases(store, settings.hold_seconds, settings.explore, self.plan)
        self.admission = Admission(settings.max_queued_requests, self.started)
        self.retries = Retries()
        self.conversations = Conversations()
        self.texts = Texts()
        self.snapshots = Snapshots(store, settings.snapshot_every, settings.snapshot_keep)
        self.updates = Updates(
            store,
            self.leases,
            self.plan,
            self.metrics,
            self.snapshots,
            settings.model_dump(mode="json"),
        )

        def counted() -> Child:
            self.metrics.engine_starts.inc()
            return make_child()

        self.link = EngineLink(counted, self.updates.claim, start_seconds=settings.start_seconds)
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Starts the engine and the update loop; returns at once."""
        self._tasks = [
            asyncio.create_task(self.link.run(), name="engine-link"),
            asyncio.create_task(self.updates.run(self.link), name="updates"),
            asyncio.create_task(self.snapshots.run(self.link), name="snapshots"),
            asyncio.create_task(self._keep_time(), name="expiry"),
        ]

    async def stop(self) -> None:
        """Ends the update loop, then the engine, then the store. What is acknowledged is on disk already."""
        for task in reversed(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        self._tasks = []
        await self.leases.records.settled()
        await asyncio.to_thread(self.store.close)

    @property
    def in_flight(self) -> int:
        """OpenAI requests that are being answered or wait."""
        return self.admission.in_flight

    def enter(self) -> None:
        """One OpenAI request more. Raises ApiError 429 if too many are on their way."""
        loaded = self.link.loaded
        self.admission.enter(0 if loaded is None else loaded.max_running_requests, time.monotonic())
        self.metrics.in_flight.inc()

    def leave(self, route: str, started: float) -> None:
        """It has been answered, or its client has gone."""
        now = time.monotonic()
        self.admission.leave(now)
        self.metrics.in_flight.dec()
        self.metrics.duration.labels(route).observe(now - started)

    def continued(self, client: bytes, prepared: Prepared) -> str | None:
        """The implicit episode that a conversation, or a text, goes on with."""
        if prepared.text is not None:
            return self.texts.find(client, prepared.text, time.time())
        if not prepared.messages:
            return None
        return self.conversations.find(client, prepared.digests, time.time())

    async def _keep_time(self) -> None:
        """Remembers the conversations of the last minutes, then ends episodes when their time has passed."""
        try:
            since = time.time() - KEEP_SECONDS
            for client, episode_id, route, digests, at in await self.store.read(
                lambda connection: episodes.conversations(connection, since)
            ):
                if route == COMPLETIONS:
                    self.texts.note(client, episode_id, unpacked(digests), at)
                    continue
                asked, *answered = unpacked(digests)
                self.conversations.note(client, episode_id, asked, answered, at)
        except StoreError as error:
            log.warning("conversations not remembered", error=str(error))
        while True:
            try:
                await self.leases.expire(self.settings.idle_seconds)
            except StoreError as error:
                log.warning("episodes not expired", error=str(error))
            await asyncio.sleep(EXPIRE_SECONDS)

    @property
    def model(self) -> str | None:
        """The name of the loaded model, or None before the first start."""
        return None if self.link.loaded is None else self.link.loaded.model


def gateway_of(request: Request) -> Gateway:
    """The gateway behind a request."""
    gateway: Gateway = request.app.state.gateway
    return gateway
