"""Implicit episodes: a request that names none goes on with the conversation that it continues.

After each completion the digest of its messages and its answer is kept, per API key, for ten minutes. A later
request whose messages begin with them belongs to the same episode. Where an agent has changed the answer
(trimmed it, or never got it whole), its messages alone are matched, if only one episode began with them.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "KEEP_SECONDS",
    "MAX_KEPT",
    "MAX_ROW",
    "SIZE",
    "Conversations",
    "extended",
    "prefix_digests",
    "unpacked",
]

KEEP_SECONDS = 600.0
MAX_KEPT = 32768
MAX_ROW = 256
SIZE = 16
# Items of a response that clients may leave out when they send it back.
_UNSAID = ("reasoning", "item_reference")


def prefix_digests(messages: Sequence[Any]) -> list[bytes]:
    """One digest for each prefix of a conversation, shortest first; each of 16 bytes."""
    digest = b""
    digests = []
    for message in messages:
        digest = extended(digest, message)
        digests.append(digest)
    return digests


def extended(digest: bytes, message: Any) -> bytes:
    """The digest of a conversation with one message more."""
    if isinstance(message, dict) and message.get("type") in _UNSAID:
        return digest
    text = orjson.dumps(said(message), option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=SIZE, key=digest).digest()


def said(message: Any) -> Any:
    """What a message says, without what clients add or leave out when they send it back."""
    if not isinstance(message, dict):
        return message
    parts: dict[str, Any] = {
        "role": message.get("role") or message.get("type"),
        "content": _text(message.get("content")),
    }
    for name in ("call_id", "tool_call_id", "name", "arguments", "output"):
        if message.get(name):
            parts[name] = _text(message[name])
    calls = [
        [
            call.get("id"),
            (call.get("function") or {}).get("name"),
            (call.get("function") or {}).get("arguments"),
        ]
        for call in message.get("tool_calls") or ()
        if isinstance(call, dict)
    ]
    if calls:
        parts["tool_calls"] = calls
    return parts


def _text(content: Any) -> Any:
    """A list of text parts and the text itself say the same, and so do no content and an empty one."""
    if content is None:
        return ""
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else part for part in content]
        known = [text for text in texts if isinstance(text, str)]
        if len(known) == len(texts):
            return "".join(known)
    return content


class _Kept:
    """Episodes by key, in the order in which the keys were last noted."""

    def __init__(self) -> None:
        self.episodes: OrderedDict[tuple[bytes, bytes], tuple[float, list[str]]] = OrderedDict()

    def add(self, key: tuple[bytes, bytes], episode: str, until: float) -> None:
        row = self.get(key)
        if episode not in row:
            row.append(episode)
            del row[:-MAX_ROW]
        self.episodes[key] = (until, row)
        self.episodes.move_to_end(key)

    def get(self, key: tuple[bytes, bytes]) -> list[str]:
        return self.episodes[key][1] if key in self.episodes else []

    def forget(self, now: float) -> None:
        while self.episodes:
            key = next(iter(self.episodes))
            if self.episodes[key][0] > now and len(self.episodes) <= MAX_KEPT:
                break
            del self.episodes[key]


class Conversations:
    """What is kept, in bounded memory. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._answered = _Kept()
        """Conversations with an answer; of each the episode that has waited longest comes first."""
        self._asked = _Kept()
        """Conversations without one."""

    def note(
        self, client: bytes, episode_id: str, asked: bytes, answered: Iterable[bytes], now: float
    ) -> None:
        """Remembers how far an episode has got: its messages, and those with each choice of the answer."""
        self._asked.add((client, asked), episode_id, now + KEEP_SECONDS)
        for digest in answered:
            self._answered.add((client, digest), episode_id, now + KEEP_SECONDS)
        self._asked.forget(now)
        self._answered.forget(now)

    def find(self, client: bytes, digests: Sequence[bytes], now: float) -> str | None:
        """The episode that messages with these prefix digests continue.

        The longest prefix wins. Of several episodes that said the same, the one that has waited longest goes
        on, so that each of them is continued once before any is continued twice.
        """
        self._asked.forget(now)
        self._answered.forget(now)
        for digest in reversed(digests[:-1]):
            row = self._answered.get((client, digest))
            if row:
                # To the end of the row: the others come first next time.
                row.append(row.pop(0))
                return row[-1]
        for digest in reversed(digests[:-1]):
            row = self._asked.get((client, digest))
            if len(row) == 1:
                return row[0]
        return None

    def __len__(self) -> int:
        return len(self._asked.episodes) + len(self._answered.episodes)


def unpacked(digests: bytes) -> list[bytes]:
    """Digests that were kept in one piece."""
    return [digests[i : i + SIZE] for i in range(0, len(digests), SIZE)]
