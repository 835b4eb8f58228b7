"""The life of a version: a population is complete, its step is journalled, applied, published; or somebody
asks for an older version back, which goes the same way.

The order is what makes it safe to kill any process at any moment: nothing is applied that is not on disk, and
an applied record that was not published is applied again, which the engine answers as the first time.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import structlog

from seedbed_server.gateway import guards, ledger
from seedbed_server.gateway.applying import Applier, Halt
from seedbed_server.gateway.errors import ApiError, busy, unavailable
from seedbed_server.gateway.forcing import Force, refuse
from seedbed_server.gateway.link_types import Claim, LinkError
from seedbed_server.gateway.populations import load_population
from seedbed_server.gateway.rollback import Ask, halted, journal_rollback
from seedbed_server.store import StoreError, journal
from seedbed_server.store.lineage import updates_in_lineage
from seedbed_server.store.rows import Applied, JournalRow, PopulationRow, RunRow

if TYPE_CHECKING:
    from seedbed.v1 import engine_pb2 as pb
    from seedbed_server.gateway.engine_link import EngineLink
    from seedbed_server.gateway.leases import Leases
    from seedbed_server.gateway.metrics import Metrics
    from seedbed_server.gateway.plan import Plan
    from seedbed_server.gateway.snapshots import Snapshots
    from seedbed_server.learner import Population
    from seedbed_server.store import Store

__all__ = ["Updates"]

log = structlog.get_logger(__name__)


class Updates:
    """Owns the version: moves it from one population to the next."""

    def __init__(
        self,
        store: Store,
        leases: Leases,
        plan: Plan,
        metrics: Metrics,
        snapshots: Snapshots,
        settings: dict[str, object],
    ) -> None:
        self._store = store
        self._snapshots = snapshots
        self._applier = Applier(store, snapshots)
        self._leases = leases
        self._plan = plan
        self._metrics = metrics
        self._settings = settings
        self._taken_over = False
        self._loaded: RunRow | None = None
        self._next: Population | None = None
        self._pending: JournalRow | None = None
        self._asked: Ask | None = None
        self._known = asyncio.Event()
        self.version = 0
        self.made = 0
        """Updates that make the version: what schedules go by."""
        self.digest = b""
        self.last: JournalRow | None = None
        self.last_closed: PopulationRow | None = None
        """The population that was closed last, with its outcome and report."""
        self._forced: Force | None = None

    async def claim(self, loaded: pb.DescribeResponse) -> Claim:
        """What an engine that has just loaded its model must hold before it serves this store."""
        if loaded.state.version != 0:
            raise LinkError(
                f"the engine has version {loaded.state.version} already; end it, so that a fresh one starts"
            )
        run = _run_of(loaded, self._settings)
        first = not self._taken_over
        standing = await self._store.write(
            lambda connection: ledger.take_over(
                connection, run, self._plan, self._store.place.name, first=first, now=time.time()
            )
        )
        self._taken_over = True
        if first:
            self._loaded = standing.run
            self._next, self._pending = standing.population, standing.pending
            self.last_closed, self._leases.paused = standing.last_closed, standing.pause
            self.version = self._leases.version = len(standing.applied)
            self.made = await self._store.read(
                lambda connection: updates_in_lineage(connection, self.version)
            )
            self.digest = standing.run.start_digest
            if standing.applied:
                self.last = await self._store.read(journal.last_update)
                self.digest = standing.applied[-1].digest or b""
            self._metrics.version.set(self.version)
            self._known.set()
            self._snapshots.published(self.version)
        rows, start_digest = standing.applied, standing.run.start_digest
        await self._snapshots.look_around(rows, start_digest)
        way = await self._snapshots.way_to(rows, len(rows), start_digest)
        return Claim(standing.term, way, lambda: self._snapshots.recheck(way, rows, start_digest))

    async def run(self, link: EngineLink) -> None:
        """Makes updates until it is cancelled, or until a record cannot be applied."""
        await self._known.wait()
        try:
            while True:
                if self._pending is not None:
                    assert self._loaded is not None
                    start_digest = self._loaded.start_digest
                    await self._applier.apply(link, self._pending, start_digest, self._publish)
                    self._pending = None
                    self._answer()
                if self._next is not None:
                    self._leases.explore(self._next)
                    self._next = None
                await self._leases.due(self._is_asked)
                pause = self._leases.paused
                if self._asked is None and pause is not None and pause.roll_back_to is not None:
                    # What the guard over the controls has decided.
                    self._asked = Ask(pause.roll_back_to, pause.reason)
                if self._asked is not None:
                    await self._go_back(self._asked)
                else:
                    await self._close()
        except Halt as halt:
            self._halt(str(halt))
        except Exception as error:
            log.exception("learning failed")
            self._halt(
                f"a fault of the server ended learning ({error!r}); its log says more. Nothing is explored "
                "until it is started again"
            )

    def _halt(self, reason: str) -> None:
        self._leases.hold()
        self._leases.halted = reason
        for waiting in (self._asked, self._forced):
            if waiting is not None:
                waiting.refuse(halted(reason))
        log.error("learning halted", reason=reason)

    def ask_rollback(self, to_version: int, reason: str) -> Ask:
        """Asks the loop for an older version; who asks for the same meanwhile waits for the same.

        Raises ApiError: 429 while another version is asked for, 503 when learning has halted.
        """
        if self._leases.halted is not None:
            raise halted(self._leases.halted)
        if not self._known.is_set():
            raise unavailable("the journal is not read yet; try again in a few seconds")
        if self._asked is None:
            self._asked = Ask(to_version, reason)
            self._leases.poke()
        elif self._asked.to_version != to_version:
            raise busy(
                f"to_version: a rollback to {self._asked.to_version} is on its way; ask again after it", 5
            )
        return self._asked

    def withdraw(self, ask: Ask) -> None:
        """Nobody waits for a rollback that was not begun."""
        if self._asked is ask and not ask.written.done():
            self._asked = None

    async def _go_back(self, ask: Ask) -> None:
        run = self._loaded
        assert run is not None
        self._leases.hold()
        try:
            done = await self._store.write(
                lambda connection: journal_rollback(
                    connection, self._plan, ask, run.start_digest, time.time()
                )
            )
        except (ApiError, StoreError) as error:
            log.error("not rolled back", to_version=ask.to_version, reason=str(error))
            ask.refuse(error)
            self._asked = None
            if isinstance(error, ApiError):
                await self._stay()
            else:
                await asyncio.sleep(2.0)
            await self._look()
            return
        if isinstance(done, JournalRow):
            ask.written.set_result(done)
            await self._look()
            self._answer()
            return
        self._pending, self._next, self._leases.paused = done.row, done.following, done.pause
        ask.written.set_result(done.row)
        if done.closed is not None:
            self._note(done.closed)
        log.warning("rolling back", to_version=ask.to_version, version=done.row.version, reason=ask.reason)

    def _answer(self) -> None:
        """Tells who asked for a rollback that it is live."""
        ask = self._asked
        if ask is not None and ask.written.done():
            self._asked = None
            ask.done.set()

    def ask_step(self) -> Force:
        """Asks the loop to close the population, once for all who ask meanwhile. Raises ApiError 503."""
        if self._leases.halted is not None:
            raise halted(self._leases.halted)
        if not self._known.is_set():
            raise unavailable("the journal is not read yet; try again in a few seconds")
        if self._forced is None:
            self._forced = Force()
            self._leases.poke()
        return self._forced

    def _is_asked(self) -> bool:
        pause = self._leases.paused
        wanted = pause is not None and pause.roll_back_to is not None
        return self._asked is not None or self._forced is not None or wanted

    async def _stay(self) -> None:
        """There is nothing that the guard over the controls could go back to."""
        try:
            await self._store.write(guards.stay)
        except StoreError as error:
            log.error("pause not kept", error=str(error))
            await asyncio.sleep(2.0)

    async def _look(self) -> None:
        """Reads what the store says of population, pause and journal, and goes on with that.

        A record of which nobody was told, because the answer to its commit was lost, is applied like any
        other.
        """
        while True:
            try:
                self._next, self._leases.paused, last = await self._store.read(
                    lambda connection: (
                        load_population(connection, self._plan.rewards),
                        guards.pause_of(connection),
                        journal.last(connection),
                    )
                )
                self._pending = last if last is not None and last.version == self.version + 1 else None
                return
            except StoreError as error:
                log.error("population not read", error=str(error))
                await asyncio.sleep(2.0)

    async def _close(self) -> None:
        run = self._loaded
        assert run is not None
        force, self._forced = self._forced, None
        self._leases.hold()
        try:
            closed = await self._store.write(
                lambda connection: ledger.close_population(
                    connection,
                    self._plan,
                    rank=run.rank,
                    noise_version=run.noise_version,
                    start_digest=run.start_digest,
                    now=time.time(),
                    force=force is not None,
                )
            )
        except StoreError as error:
            log.error("population not closed", error=str(error))
            if force is not None:
                force.refuse(error)
            await asyncio.sleep(2.0)
            await self._look()
            return
        if closed is None:
            await self._look()
            if force is not None:
                refuse(force, self._leases.paused)
            return
        self._pending, self._next = closed.row, closed.following
        if force is not None and not force.closed.done():
            force.closed.set_result(closed)
        self._note(closed.population)

    def _note(self, closed: PopulationRow) -> None:
        self.last_closed = closed
        assert closed.outcome is not None
        if closed.reward_mean is not None and closed.reward_spread is not None:
            self._metrics.reward_mean.set(closed.reward_mean)
            self._metrics.reward_spread.set(closed.reward_spread)
        report = closed.report or {}
        self._metrics.dropped.inc(report.get("dropped", 0))
        self._metrics.stale.inc(report.get("stale_episodes", 0))
        log.info(
            "population closed",
            population=closed.number,
            closing=closed.closing,
            outcome=closed.outcome,
            reward_mean=closed.reward_mean,
            reward_spread=closed.reward_spread,
        )
        if closed.outcome != "step":
            self._metrics.no_steps.labels(closed.outcome).inc()

    async def _publish(self, row: JournalRow, applied: Applied) -> None:
        await self._store.write(lambda connection: journal.mark_applied(connection, row.version, applied))
        self.last = await self._store.read(journal.last_update)
        self.made = await self._store.read(lambda connection: updates_in_lineage(connection, row.version))
        self.version, self.digest = row.version, applied.digest
        self._leases.version = row.version
        self._metrics.version.set(row.version)
        if row.kind == journal.UPDATE:
            self._metrics.updates.inc()
            self._metrics.update_pause.observe(applied.seconds or 0.0)
        self._snapshots.published(row.version)
        log.info(
            "version published",
            kind=row.kind,
            version=row.version,
            digest=applied.digest.hex()[:16],
            seconds=round(applied.seconds or 0.0, 3),
        )


def _run_of(loaded: pb.DescribeResponse, settings: dict[str, object]) -> RunRow:
    return RunRow(
        created_at=time.time(),
        model=loaded.model,
        base_digest=loaded.base_digest,
        start_digest=loaded.state.digest,
        dtype=loaded.dtype,
        scope=loaded.scope,
        noise_version=loaded.noise_version,
        rank=loaded.rank,
        settings=dict(settings),
        term=0,
    )
