"""Retries of the SDK: a marked request joins the answer that is still coming, or gets the finished one again.

A `Recording` is one answer, written by the completion that makes it and read by the request that asked for
it, and by its retries. `Retries` keeps them for ten minutes, in bounded memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Recording", "Retries", "State", "is_retry", "key_of"]

State: TypeAlias = Literal["running", "finished", "cancelled", "failed"]
Key: TypeAlias = tuple[bytes, bytes]

KEEP_SECONDS = 600.0
MAX_BYTES = 64 << 20
# What a recording costs beside its pieces, about.
OVERHEAD = 2048


def is_retry(headers: Mapping[str, str]) -> bool:
    """Whether the SDK says that it asks again."""
    count = headers.get("x-stainless-retry-count", "")
    return count.isdigit() and int(count) > 0


def key_of(route: str, body: bytes, episode_id: str | None, client: bytes) -> Key:
    """What a retry has in common with its original: the episode, or without one the client; and the body."""
    scope = b"client " + client if episode_id is None else b"episode " + episode_id.encode()
    return scope, hashlib.blake2b(route.encode() + b"\0" + body, digest_size=16).digest()


class Recording:
    """One answer as it comes.

    Attributes:
        status, headers, media_type: known once it has begun.
        has_begun: whether they are, or there was an error instead.
        pieces: of the body, so far.
        episode_id: where a retry goes on if this one is cancelled; None if that episode was given back.
        delivered: whether a client had all of it.
        joined: how many retries it answered.
    """

    def __init__(self, key: Key) -> None:
        self.key = key
        self.state: State = "running"
        self.status = 0
        self.headers: dict[str, str] = {}
        self.media_type = "application/json"
        self.episode_id: str | None = None
        self.delivered = False
        self.joined = 0
        self.size = OVERHEAD
        self.ended_at = 0.0
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        self.pieces: list[bytes] = []
        self._error: BaseException | None = None
        self._readers: set[asyncio.Event] = set()

    # -- by the completion that makes it -------------------------------------------------------------

    def begin(self, status: int, headers: Mapping[str, str], media_type: str) -> None:
        """Says what kind of answer it is."""
        self.status, self.headers, self.media_type = status, dict(headers), media_type
        self.has_begun = True
        self._wake()

    def add(self, piece: bytes) -> None:
        """One piece more of the body."""
        self.pieces.append(piece)
        self.size += len(piece) + 64
        self._wake()

    def end(self, state: State, error: BaseException | None = None) -> None:
        """There is no more to come; an `error` reaches those who still wait for the beginning."""
        self.state, self._error = state, error
        self.ended_at = time.monotonic()
        self.has_begun = True
        self._wake()

    # -- by those who read it (`Reader`) -------------------------------------------------------------

    def enter(self, news: asyncio.Event) -> None:
        """One reader more, who is told whenever there is something new."""
        self._readers.add(news)

    def leave(self, news: asyncio.Event) -> None:
        """One reader less; an answer that nobody waits for any more is not generated to its end."""
        self._readers.discard(news)
        if not self._readers and self.state == "running":
            self.state = "cancelled"
            self.ended_at = time.monotonic()
            if self.task is not None:
                self.task.cancel()

    def check(self) -> None:
        """Raises what the completion failed with, if it did."""
        if self._error is not None:
            raise self._error

    @property
    def body(self) -> bytes:
        """What has come so far."""
        return b"".join(self.pieces)

    def _wake(self) -> None:
        for news in self._readers:
            news.set()


class Retries:
    """The answers that a retry may ask for."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._by_key: dict[Key, list[Recording]] = {}
        self._ended: OrderedDict[int, Recording] = OrderedDict()
        self._bytes = 0

    def add(self, recording: Recording) -> None:
        """Keeps a recording from its beginning on."""
        self._by_key.setdefault(recording.key, []).append(recording)

    def settle(self, recording: Recording) -> None:
        """It has ended: from now on it counts against the memory; one that failed is forgotten."""
        if id(recording) in self._ended:
            return
        if recording.state == "failed":
            self._drop(recording)
            return
        self._ended[id(recording)] = recording
        self._bytes += recording.size
        self._forget()

    def find(self, key: Key) -> Recording | None:
        """The answer that a marked request asks for once more.

        Of several that the same body has, first one that no client had to its end, then one that still runs;
        among those the one that answered the fewest retries, the oldest first.
        """
        self._forget()
        found = self._by_key.get(key, [])
        return min(found, key=_order, default=None)

    def take(self, recording: Recording) -> None:
        """A retry asks anew instead of a cancelled one: it is not found again."""
        if id(recording) in self._ended:
            del self._ended[id(recording)]
            self._bytes -= recording.size
        self._drop(recording)

    @property
    def kept_bytes(self) -> int:
        """Memory that finished answers take, about."""
        return self._bytes

    def _forget(self) -> None:
        horizon = time.monotonic() - KEEP_SECONDS
        while self._ended:
            oldest = next(iter(self._ended.values()))
            if oldest.ended_at > horizon and self._bytes <= self._max_bytes:
                break
            self.take(oldest)

    def _drop(self, recording: Recording) -> None:
        kept = self._by_key.get(recording.key, [])
        if recording in kept:
            kept.remove(recording)
            if not kept:
                del self._by_key[recording.key]


def _order(recording: Recording) -> tuple[int, int]:
    if recording.state == "running":
        return 1, recording.joined
    return (2 if recording.delivered else 0), recording.joined
