"""Which member answers: every request belongs to an episode, every episode to one member, to its end."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from seedbed_server.gateway import ids
from seedbed_server.gateway.errors import ApiError, bad_request, busy
from seedbed_server.learner.population import (
    Population,
    is_complete,
    lease,
    release,
    reward_episode,
)
from seedbed_server.store import episodes
from seedbed_server.store.rows import CompletionEnd, CompletionRow, EpisodeRow

if TYPE_CHECKING:
    import sqlalchemy as sa

    from seedbed_server.store import Store

__all__ = ["Lease", "Leases", "Wish"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Wish:
    """What a request says about its episode."""

    live: bool
    """The unperturbed live model is asked for."""
    episode_id: str | None = None
    group: str | None = None


@dataclass(frozen=True)
class Lease:
    """One completion of an episode, before it runs."""

    episode: EpisodeRow
    completion_id: str
    is_new: bool
    """Whether this request opened the episode."""
    stored: asyncio.Future[None]
    """Done when episode and completion are on disk; nothing may be answered before."""


class Leases:
    """Holds the open population in memory and hands out its members. The store stays the truth."""

    def __init__(self, store: Store, hold_seconds: float) -> None:
        self._store = store
        self._hold_seconds = hold_seconds
        self._population: Population | None = None
        self._open = asyncio.Event()
        self.halted: str | None = None
        """Why nothing is explored any more, if so."""
        self.complete = asyncio.Event()
        """Set while the population can be closed."""
        self.open_episodes = 0

    @property
    def population(self) -> Population | None:
        """The population that explores, or None before the first engine start."""
        return self._population

    def explore(self, population: Population) -> None:
        """Opens the gate for a population."""
        self._population = population
        if is_complete(population):
            self.complete.set()
        else:
            self.complete.clear()
        self._open.set()

    def hold(self) -> None:
        """New episodes wait until `explore` is called again: an update is on its way."""
        self._open.clear()

    async def take(self, wish: Wish, route: str) -> Lease:
        """Finds or opens the episode of a request and starts writing it down.

        Raises ApiError: 404 for an unknown episode, 400 for one that does not fit the request, 429 if an
        update takes longer than a request may be held, 503 when learning has stopped.
        """
        if wish.episode_id is None:
            episode = await self._new_episode(wish)
        else:
            episode = await self._known_episode(wish, wish.episode_id)
        is_new = wish.episode_id is None
        completion = CompletionRow(
            ids.completion_id(), episode.id, route, episode.member, "running", time.time()
        )

        def job(connection: sa.Connection) -> None:
            if is_new:
                episodes.insert(connection, episode)
            episodes.insert_completion(connection, completion)

        stored = asyncio.ensure_future(self._store.write(job))
        stored.add_done_callback(_retrieve)
        return Lease(episode, completion.id, is_new, stored)

    def give_back(self, lease: Lease) -> None:
        """The episode that this request opened never got an answer: its member is free for another."""
        if not lease.is_new:
            return
        population, episode = self._population, lease.episode
        if population is not None and episode.member is not None and episode.population == population.number:
            self._population = release(population, episode.member, episode.group)
        self._later(lambda connection: episodes.drop(connection, episode.id))

    def end(self, lease: Lease, end: CompletionEnd) -> None:
        """Writes down how a completion ended; nobody waits for it."""
        self._later(lambda connection: episodes.end_completion(connection, lease.completion_id, end))

    def note_reward(self, episode: EpisodeRow, total: float) -> None:
        """Counts a reward that is on disk for the population in memory."""
        population = self._population
        if population is None or episode.member is None or episode.population != population.number:
            return
        self._population = reward_episode(population, episode.member, episode.id, episode.group, total)
        if is_complete(self._population):
            self.complete.set()

    async def _new_episode(self, wish: Wish) -> EpisodeRow:
        now = time.time()
        if wish.live:
            return EpisodeRow(ids.episode_id(), None, None, None, None, wish.group, "open", now)
        await self._gate()
        assert self._population is not None
        self._population, member = lease(self._population, wish.group)
        return EpisodeRow(
            id=ids.episode_id(),
            population=self._population.number,
            member=member.index,
            seed=member.seed,
            sigma=member.sign * self._population.sigma,
            group=wish.group,
            status="open",
            created_at=now,
        )

    async def _known_episode(self, wish: Wish, episode_id: str) -> EpisodeRow:
        episode = await self._store.read(lambda connection: episodes.find(connection, episode_id))
        if episode is None or episode.status == "dropped":
            raise ApiError(
                404,
                f"episode_id: {episode_id!r} is not known; leave it out to open an episode, and use "
                "the one that the answer names",
                param="seedbed.episode_id",
                code="episode_not_found",
            )
        if wish.group is not None and wish.group != episode.group:
            raise bad_request(
                f"group: the episode {episode_id} has the group {episode.group!r}, and {wish.group!r} was "
                "given; leave it out, or open another episode",
                param="seedbed.group",
            )
        if wish.live != (episode.member is None):
            kind = "the live model" if episode.member is None else f"member {episode.member}"
            asked = "the live model" if wish.live else "exploration"
            raise bad_request(
                f"model: the episode {episode_id} belongs to {kind}, and {asked} was asked for; keep the "
                "model name of the episode, or open another one",
                param="model",
            )
        return episode

    async def _gate(self) -> None:
        if not self._open.is_set():
            if self.halted is not None:
                raise ApiError(503, self.halted, code="learning_halted", headers={"retry-after": "120"})
            try:
                async with asyncio.timeout(self._hold_seconds):
                    await self._open.wait()
            except TimeoutError:
                raise busy(
                    f"an update took longer than {self._hold_seconds:g} s; try again",
                    5,
                ) from None

    def _later(self, job: Any) -> None:
        task = asyncio.ensure_future(self._store.write(job))
        task.add_done_callback(_logged)


def _retrieve(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


def _logged(task: asyncio.Future[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("record not kept", error=str(error))
