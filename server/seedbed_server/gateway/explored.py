"""The population that explores, in memory: its gate, its rewards, and when it is time to close it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from seedbed_server.gateway.errors import ApiError, busy
from seedbed_server.gateway.lease_types import Counts
from seedbed_server.gateway.populations import apply, has_reward
from seedbed_server.learner import close_reason
from seedbed_server.learner.closing import look_again
from seedbed_server.learner.population import release

if TYPE_CHECKING:
    from collections.abc import Callable

    from seedbed_server.gateway.guards import Pause
    from seedbed_server.gateway.verdicts import Counted
    from seedbed_server.learner import Closing, Population
    from seedbed_server.store.rows import EpisodeRow

__all__ = ["Explored"]

MAX_SLEEP = 60.0


class Explored:
    """Guards the open population against everybody who changes it. The store stays the truth."""

    def __init__(self, hold_seconds: float, closing: Closing) -> None:
        self._hold_seconds = hold_seconds
        self._closing = closing
        self._population: Population | None = None
        self._early: dict[tuple[int, str], Counted] = {}
        self._open = asyncio.Event()
        self._changed = asyncio.Event()
        self.counts = Counts()
        self.halted: str | None = None
        """Why nothing is explored any more, if so."""
        self.paused: Pause | None = None
        """Why nothing is explored for now, if so."""

    def is_paused(self) -> bool:
        """Whether the live model answers everything."""
        return self.paused is not None

    @property
    def population(self) -> Population | None:
        """The population that explores, or None before the first engine start."""
        return self._population

    def explore(self, population: Population) -> None:
        """Opens the gate for a population."""
        # What was rewarded since it was read: episodes that went on over the update.
        for (number, _), counted in self._early.items():
            if number == population.number:
                population = apply(population, counted)
        self._early = {key: value for key, value in self._early.items() if key[0] > population.number}
        self._population = population
        self._changed.set()
        self._open.set()

    def hold(self) -> None:
        """New episodes wait until `explore` is called again: an update is on its way."""
        self._open.clear()

    def poke(self) -> None:
        """Lets `due` look again."""
        self._changed.set()

    async def due(self, also: Callable[[], bool]) -> None:
        """Returns when the population can be closed, or when `also` is true after a `poke`."""
        while not (also() or self._is_due()):
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._look_again()):
                    await self._changed.wait()

    def _is_due(self) -> bool:
        population = self._population
        if population is None or self.paused is not None:
            return False
        return close_reason(population, time.time(), self._closing) is not None

    def _look_again(self) -> float | None:
        population = self._population
        if population is None or self.paused is not None:
            return None
        seconds = look_again(population, time.time(), self._closing)
        # The clock of the wall may be set: nothing is slept through.
        return None if seconds is None else min(max(seconds, 0.001), MAX_SLEEP)

    def note(self, counted: Counted) -> None:
        """Tells the population in memory what is on disk of one episode's rewards."""
        population = self._population
        if population is None or counted.population > population.number:
            # It is open in the store already, and explores as soon as the update before it is applied.
            self._early[counted.population, counted.episode.id] = counted
            return
        if counted.population != population.number:
            return
        if not self._open.is_set():
            # It may be read from the store at this moment.
            self._early[counted.population, counted.episode.id] = counted
        nothing = not any(tally.rewards for tally in population.tallies)
        if counted.episode.implicit and counted.total is not None:
            self.counts.implicit_rewarded += not has_reward(population, counted.episode.id)
        self._population = apply(population, counted)
        # Deadlines mean something from the first reward on.
        if nothing or self._is_due():
            self._changed.set()

    async def gate(self) -> None:
        """Returns when episodes may be leased. Raises ApiError: 429 after too long, 503 if halted."""
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

    def release(self, episode: EpisodeRow) -> None:
        """Takes an episode back that ended, or never began: its member is free for another."""
        population = self._population
        if population is not None and episode.member is not None and episode.population == population.number:
            self._population = release(population, episode.member, episode.group)
