"""One who reads a recording: to its end, or until the client hangs up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from seedbed_server.gateway.bodies import ClientGone, hang_up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import Request

    from seedbed_server.gateway.retries import Recording

__all__ = ["Reader"]


class Reader:
    """Has to be closed. The request's body must have been read."""

    def __init__(self, recording: Recording, request: Request) -> None:
        self._recording = recording
        self._news = asyncio.Event()
        self._gone = asyncio.create_task(hang_up(request))
        self._gone.add_done_callback(self._wake)
        recording.enter(self._news)

    async def begun(self) -> None:
        """Returns when status and headers are known. Raises ClientGone, or the completion's error."""
        while not self._recording.has_begun:
            if self._gone.done():
                raise ClientGone
            await self._news.wait()
            self._news.clear()
        self._recording.check()

    async def read(self) -> AsyncIterator[bytes]:
        """The body from its first byte on, as it comes; it stops early when the client hangs up."""
        recording, index = self._recording, 0
        while not self._gone.done():
            self._news.clear()
            if index < len(recording.pieces):
                waiting = recording.pieces[index:]
                index += len(waiting)
                yield waiting[0] if len(waiting) == 1 else b"".join(waiting)
            elif recording.state == "running":
                await self._news.wait()
            else:
                recording.delivered = True
                return

    def close(self) -> None:
        """Reads no more; safe to call twice."""
        self._gone.cancel()
        self._recording.leave(self._news)

    def _wake(self, _task: asyncio.Task[None]) -> None:
        self._news.set()
