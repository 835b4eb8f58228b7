"""What completions leave in the store: their beginnings and ends, written together.

While one write is on its way, what comes meanwhile waits and goes as the next one, so that a burst of
requests costs two writes and not one for each. The order is kept where it matters: episode, completion, end,
drop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from seedbed_server.store import StoreError, episodes

if TYPE_CHECKING:
    import sqlalchemy as sa

    from seedbed_server.store import Store
    from seedbed_server.store.rows import CompletionEnd, CompletionRow, EpisodeRow

__all__ = ["Records"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Begun:
    """A completion; with its episode if that is new, or if its metadata changed."""

    completion: CompletionRow
    opened: EpisodeRow | None
    described: EpisodeRow | None
    stored: asyncio.Future[None]


@dataclass
class _Waiting:
    """What the next write takes."""

    begun: list[_Begun] = field(default_factory=list)
    ended: list[tuple[str, CompletionEnd]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.begun or self.ended or self.dropped)

    def parts(self) -> list[_Waiting]:
        """Each record by itself, in an order that serves."""
        return [
            *(_Waiting(begun=[one]) for one in self.begun),
            *(_Waiting(ended=[one]) for one in self.ended),
            *(_Waiting(dropped=[one]) for one in self.dropped),
        ]

    def write(self, connection: sa.Connection) -> None:
        """The job of the store."""
        episodes.insert(connection, *(one.opened for one in self.begun if one.opened is not None))
        for one in self.begun:
            if one.described is not None:
                episodes.set_metadata(connection, one.described.id, one.described.metadata)
        episodes.insert_completion(connection, *(one.completion for one in self.begun))
        episodes.end_completion(connection, *self.ended)
        for episode_id in self.dropped:
            episodes.drop(connection, episode_id)

    def settle(self, error: Exception | None) -> None:
        """Tells those who wait, and the log of what nobody waits for."""
        for one in self.begun:
            if one.stored.done():
                continue
            if error is None:
                one.stored.set_result(None)
            else:
                one.stored.set_exception(error)
                # Whoever asked may have left.
                one.stored.exception()
        if error is not None and (self.ended or self.dropped):
            log.error("record not kept", error=str(error))


class Records:
    """Writes them, one write at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting = _Waiting()
        self._writing: asyncio.Task[None] | None = None

    def begin(
        self, completion: CompletionRow, opened: EpisodeRow | None = None, described: EpisodeRow | None = None
    ) -> asyncio.Future[None]:
        """A completion; with its episode if it opened that, or changed its metadata.

        Done when they are on disk; raises what the store does.
        """
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.begun.append(_Begun(completion, opened, described, stored))
        self._wake()
        return stored

    def end(self, completion_id: str, end: CompletionEnd) -> None:
        """How a completion ended; nobody waits for it."""
        self._waiting.ended.append((completion_id, end))
        self._wake()

    def drop(self, episode_id: str) -> None:
        """An episode that never got an answer; nobody waits for it."""
        self._waiting.dropped.append(episode_id)
        self._wake()

    async def settled(self) -> None:
        """Returns when everything has been written that was to be."""
        while self._writing is not None:
            await asyncio.wait((self._writing,))

    def _wake(self) -> None:
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="records")

    async def _write(self) -> None:
        try:
            while self._waiting:
                now, self._waiting = self._waiting, _Waiting()
                try:
                    await self._store.write(now.write)
                except StoreError as error:
                    now.settle(error)
                except Exception:  # noqa: BLE001
                    # One of them cannot be written: the others shall not go with it.
                    await self._one_by_one(now)
                else:
                    now.settle(None)
        finally:
            self._writing = None

    async def _one_by_one(self, records: _Waiting) -> None:
        for one in records.parts():
            try:
                await self._store.write(one.write)
            except Exception as error:  # noqa: BLE001
                one.settle(error)
            else:
                one.settle(None)
