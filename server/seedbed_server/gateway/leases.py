"""Which member answers: every request belongs to an episode, every episode to one member, to its end."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from seedbed_server.gateway import ids
from seedbed_server.gateway.episode_cache import EpisodeCache
from seedbed_server.gateway.explored import Explored
from seedbed_server.gateway.lease_types import (
    Lease,
    Terms,
    Wish,
    conflict,
    ended_how,
    has_ended,
    unknown_episode,
    with_metadata,
)
from seedbed_server.gateway.records import Records
from seedbed_server.gateway.verdicts import end_episode
from seedbed_server.learner import explores, lease
from seedbed_server.store import episodes
from seedbed_server.store.rows import CompletionEnd, CompletionRow, EpisodeRow

if TYPE_CHECKING:
    import sqlalchemy as sa

    from seedbed_server.gateway.plan import Plan
    from seedbed_server.gateway.verdicts import Counted
    from seedbed_server.store import Store

__all__ = ["Lease", "Leases", "Wish"]


class Leases(Explored):
    """Hands out the members of the open population to episodes. The store stays the truth."""

    def __init__(self, store: Store, hold_seconds: float, share: float, plan: Plan) -> None:
        super().__init__(hold_seconds, plan.closing)
        self._store = store
        self._share = share
        self._rules = plan.rewards
        self.cache = EpisodeCache(store)
        self.records = Records(store)
        self.version = 0
        """Of the live weights."""

    async def take(self, wish: Wish, route: str, prefix: str = ids.CHAT_PREFIX, choices: int = 1) -> Lease:
        """Finds or opens the episode of a request and starts writing it down.

        Raises ApiError: 404 for an unknown episode, 409 for one that has ended or does not fit the request,
        429 if an update takes longer than a request may be held, 503 when learning has stopped.
        """
        if wish.episode_id is None:
            episode = await self._new_episode(wish)
        else:
            episode = await self._known_episode(wish, wish.episode_id)
        is_new = wish.episode_id is None
        known, episode = episode, with_metadata(episode, wish.metadata)
        completion = CompletionRow(
            ids.completion_id(prefix), episode.id, route, episode.member, "running", time.time(), choices
        )
        if is_new:
            self.counts.implicit += 1
        if is_new or episode is not known:
            self.cache.put(episode)

        if is_new:
            stored = self.records.begin(completion, opened=episode)
        else:
            stored = self.records.begin(completion, described=None if episode is known else episode)
        return Lease(episode, completion.id, is_new, stored)

    async def open(self, wish: Wish, terms: Terms) -> EpisodeRow:
        """Opens an episode before its first request; returns it once it is on disk.

        Raises ApiError 429 or 503 as `take` does, StoreError if it could not be kept.
        """
        episode = replace(
            await self._new_episode(wish),
            key_hash=terms.key_hash,
            metadata=terms.metadata,
            expires_at=terms.expires_at,
        )
        try:
            await self._store.write(lambda connection: episodes.insert(connection, episode))
        except BaseException:
            self.release(episode)
            raise
        self.counts.opened += 1
        self.cache.put(episode)
        return episode

    async def close(
        self, episode: EpisodeRow, status: str = "closed", idle_since: float | None = None
    ) -> EpisodeRow:
        """Ends an episode: it takes no more completions; without a reward its member is free for another.

        idle_since: only if nobody has used it since.
        """
        now = time.time()

        def job(connection: sa.Connection) -> tuple[bool, Counted | None]:
            if idle_since is not None and not episodes.idle(connection, idle_since, 1, episode.id):
                return False, None
            return end_episode(connection, episode.id, status, self._rules, now)

        ended, counted = await self._store.write(job)
        newest = await self.cache.by_id(episode.id) or episode
        if ended:
            newest = replace(newest, status=status, ended_at=now)
            self.cache.put(newest)
            if counted is not None:
                self.note(counted)
            population = self._population
            if population is None or newest.member is None or newest.population != population.number:
                return newest
            if newest.id not in population.tallies[newest.member].rewards:
                self.release(newest)
        return newest

    async def expire(self, idle_seconds: float | None = None) -> int:
        """Ends the episodes whose time has passed, and those that nobody has used for `idle_seconds`.

        Returns how many.
        """
        now = time.time()
        passed = await self._store.read(lambda connection: episodes.expired(connection, now, 256))
        await self._expire(passed, None)
        if idle_seconds is None:
            return len(passed)
        since = now - idle_seconds
        idle = await self._store.read(lambda connection: episodes.idle(connection, since, 256))
        await self._expire(idle, since)
        return len(passed) + len(idle)

    def give_back(self, lease: Lease) -> None:
        """The episode that this request opened never got an answer: its member is free for another."""
        if not lease.is_new:
            return
        episode = lease.episode
        self.release(episode)
        self.cache.put(replace(episode, status="dropped"))
        self.records.drop(episode.id)

    def end(self, lease: Lease, end: CompletionEnd) -> None:
        """Writes down how a completion ended; nobody waits for it."""
        self.records.end(lease.completion_id, end)

    async def _new_episode(self, wish: Wish) -> EpisodeRow:
        now, episode_id, implicit = time.time(), ids.episode_id(), wish.client is not None
        explore = explores(episode_id, self._share) if wish.explore is None else wish.explore
        if wish.live or not explore or self.is_paused():
            return EpisodeRow(
                episode_id, None, None, None, None, wish.group, "open", now,
                implicit=implicit, client=wish.client, version=self.version,
            )  # fmt: skip
        await self.gate()
        if self.is_paused():
            # While it waited.
            return await self._new_episode(wish)
        assert self._population is not None
        self._population, member = lease(self._population, wish.group)
        return EpisodeRow(
            id=episode_id,
            population=self._population.number,
            member=member.index,
            seed=member.seed,
            sigma=member.sign * self._population.sigma,
            group=wish.group,
            status="open",
            created_at=now,
            implicit=implicit,
            client=wish.client,
            version=self._population.version,
        )

    async def _known_episode(self, wish: Wish, episode_id: str) -> EpisodeRow:
        episode = await self.cache.by_id(episode_id)
        if episode is None or episode.status == "dropped":
            raise unknown_episode(episode_id)
        if has_ended(episode, time.time()):
            raise conflict(
                f"episode_id: the episode {episode_id} is {ended_how(episode)} and takes no more "
                "completions; open another one",
                "seedbed.episode_id",
                "episode_closed",
            )
        if wish.group is not None and wish.group != episode.group:
            raise conflict(
                f"group: the episode {episode_id} has the group {episode.group!r}, and {wish.group!r} was "
                "given; leave it out, or open another episode",
                "seedbed.group",
                "episode_conflict",
            )
        if wish.live and episode.member is not None:
            raise conflict(
                f"model: the episode {episode_id} belongs to member {episode.member}, and the live model was "
                "asked for; keep the model name of the episode, or open another one",
                "model",
                "episode_conflict",
            )
        return episode

    async def _expire(self, episode_ids: list[str], idle_since: float | None) -> None:
        for episode_id in episode_ids:
            episode = await self.cache.by_id(episode_id)
            if episode is not None:
                await self.close(episode, "expired", idle_since)
