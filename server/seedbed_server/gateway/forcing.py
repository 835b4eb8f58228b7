"""POST /v1/learning/step: closing a population with whatever its members have."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from seedbed_server.gateway.errors import ApiError, busy
from seedbed_server.gateway.ledger import FORCED_QUORUM

if TYPE_CHECKING:
    from seedbed_server.gateway.guards import Pause
    from seedbed_server.gateway.ledger import Closed
    from seedbed_server.gateway.updates import Updates

__all__ = ["Force", "force_step", "refuse"]

NEVER = {"x-should-retry": "false"}


@dataclass(eq=False)
class Force:
    """Those who wait for a population to be closed."""

    closed: asyncio.Future[Closed] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def refuse(self, error: Exception) -> None:
        """It was not closed."""
        if not self.closed.done():
            self.closed.set_exception(error)
            # Nobody may wait for it any more.
            self.closed.exception()


async def force_step(updates: Updates, timeout: float) -> Closed:
    """Closes the open population, if two members or more have a reward.

    Returns once that is on disk; the update is applied after it. Raises ApiError: 409 while learning is
    paused or fewer than two members have a reward, 429 if an update before it takes longer than `timeout`
    seconds, 503 when learning has halted; StoreError if it could not be kept.
    """
    force = updates.ask_step()
    try:
        async with asyncio.timeout(timeout):
            return await asyncio.shield(force.closed)
    except TimeoutError:
        raise busy(f"an update before it took longer than {timeout:g} s; try again", 5) from None


def refuse(force: Force, paused: Pause | None) -> None:
    """Says why the population stays open."""
    if paused is not None:
        message = f"learning is paused: {paused.reason}. POST /v1/learning/resume first"
        force.refuse(ApiError(409, message, code="learning_paused", headers=NEVER))
    else:
        message = (
            f"fewer than {FORCED_QUORUM} members have a reward: nothing can be compared; post rewards first"
        )
        force.refuse(ApiError(409, message, code="too_few_members", headers=NEVER))
