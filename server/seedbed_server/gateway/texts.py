"""Implicit episodes of text completions: a prompt that begins with an earlier prompt and its answer goes on.

What was said is kept as a digest and a length, per API key and for ten minutes, as conversations are. A
prompt that begins like an earlier one and goes on otherwise is another text: few-shot prompts begin alike.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

from seedbed_server.gateway.conversations import KEEP_SECONDS, MAX_KEPT, MAX_ROW, SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MIN_BYTES", "Texts", "digests_of"]

MIN_BYTES = 16
"""What is shorter begins too many texts."""
_LENGTH = 4


def digests_of(prompt: str, answers: Iterable[str]) -> list[bytes]:
    """What a prompt says with each of its answers, as agents write it down: as it is, or without blanks."""
    said = {
        prompt + variant
        for answer in answers
        for variant in (answer, answer.rstrip(), answer.strip())
        if variant
    }
    encoded = sorted(text.encode(errors="surrogatepass") for text in said)
    return [_digest(hashlib.blake2b(text), len(text)) for text in encoded if len(text) >= MIN_BYTES]


def _digest(hashed: hashlib.blake2b, length: int) -> bytes:
    return length.to_bytes(_LENGTH, "big") + hashed.digest()[: SIZE - _LENGTH]


def _length(digest: bytes) -> int:
    return int.from_bytes(digest[:_LENGTH], "big")


class Texts:
    """What is kept, in bounded memory. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[bytes, bytes], tuple[float, list[str]]] = OrderedDict()
        self._lengths: dict[bytes, Counter[int]] = {}

    def note(self, client: bytes, episode_id: str, digests: Iterable[bytes], now: float) -> None:
        """Remembers what an episode has said; `digests` are those of `digests_of`."""
        for digest in digests:
            key = (client, digest)
            if key not in self._kept:
                self._lengths.setdefault(client, Counter())[_length(digest)] += 1
            row = self._kept[key][1] if key in self._kept else []
            if episode_id not in row:
                row.append(episode_id)
                del row[:-MAX_ROW]
            self._kept[key] = (now + KEEP_SECONDS, row)
            self._kept.move_to_end(key)
        self._forget(now)

    def find(self, client: bytes, prompt: str, now: float) -> str | None:
        """The episode that a prompt goes on with.

        The longest text wins; of several episodes that said it, the one that has waited longest.
        """
        self._forget(now)
        data = prompt.encode(errors="surrogatepass")
        hashed, start, found = hashlib.blake2b(), 0, None
        for length in sorted(n for n in self._lengths.get(client, ()) if n < len(data)):
            hashed.update(data[start:length])
            start = length
            row = self._kept.get((client, _digest(hashed.copy(), length)))
            found = row[1] if row is not None else found
        if found is None:
            return None
        # To the end of the row: the others come first next time.
        found.append(found.pop(0))
        return found[-1]

    def __len__(self) -> int:
        return len(self._kept)

    def _forget(self, now: float) -> None:
        while self._kept:
            client, digest = key = next(iter(self._kept))
            if self._kept[key][0] > now and len(self._kept) <= MAX_KEPT:
                break
            del self._kept[key]
            lengths = self._lengths[client]
            lengths[_length(digest)] -= 1
            if lengths[_length(digest)] <= 0:
                del lengths[_length(digest)]
            if not lengths:
                del self._lengths[client]
