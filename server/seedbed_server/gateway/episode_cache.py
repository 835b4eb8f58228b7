"""Episodes as they are read for every request: from memory where they were seen before, else from the store.

This gateway is the only writer of its store, so what is in memory stays true as long as every change goes
through here.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from seedbed_server.store import episodes

if TYPE_CHECKING:
    from seedbed_server.store import Store
    from seedbed_server.store.rows import EpisodeRow

__all__ = ["EpisodeCache"]

MAX_KEPT = 16384


class EpisodeCache:
    """The episodes that were used last, by id and by the hash of their session keys."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: OrderedDict[str, EpisodeRow] = OrderedDict()
        self._keys: dict[bytes, str] = {}

    async def by_id(self, episode_id: str) -> EpisodeRow | None:
        """The episode of an id."""
        if episode_id in self._rows:
            self._rows.move_to_end(episode_id)
            return self._rows[episode_id]
        row = await self._store.read(lambda connection: episodes.find(connection, episode_id))
        return None if row is None else self.put_if_new(row)

    async def by_key(self, key_hash: bytes) -> EpisodeRow | None:
        """The episode of a session key."""
        if key_hash in self._keys:
            return await self.by_id(self._keys[key_hash])
        row = await self._store.read(lambda connection: episodes.find_by_key(connection, key_hash))
        return None if row is None else self.put_if_new(row)

    def put_if_new(self, row: EpisodeRow) -> EpisodeRow:
        """Keeps what was read, unless a newer state came in meanwhile. Returns what is kept."""
        if row.id not in self._rows:
            self.put(row)
        return self._rows[row.id]

    def put(self, row: EpisodeRow) -> None:
        """Keeps the newest state of an episode."""
        self._rows[row.id] = row
        self._rows.move_to_end(row.id)
        if row.key_hash is not None:
            self._keys[row.key_hash] = row.id
        while len(self._rows) > MAX_KEPT:
            _, oldest = self._rows.popitem(last=False)
            if oldest.key_hash is not None:
                self._keys.pop(oldest.key_hash, None)
