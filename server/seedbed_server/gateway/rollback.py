"""Going back to an older version: a record in the journal first, then the engine, then published.

A rollback makes a new version with the weights of an older one. Nothing is deleted: it can be rolled back as
well. The open population is closed with the outcome `rollback`, and what follows explores at the new version.
A rollback that was journalled and not finished is resumed like an update, whatever was killed in between.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from seedbed.v1.journal_pb2 import RollbackRecord
from seedbed_server.gateway import guards
from seedbed_server.gateway.errors import ApiError, bad_request, busy
from seedbed_server.gateway.populations import save_population
from seedbed_server.store import journal, populations
from seedbed_server.store.lineage import record_of, updates_in_lineage
from seedbed_server.store.rows import JournalRow, PopulationRow

if TYPE_CHECKING:
    import sqlalchemy as sa

    from seedbed_server.gateway.guards import Pause
    from seedbed_server.gateway.plan import Plan
    from seedbed_server.gateway.updates import Updates
    from seedbed_server.learner import Population

__all__ = ["OUTCOME", "Ask", "RolledBack", "halted", "journal_rollback", "roll_back"]

OUTCOME = "rollback"
"""Of a population that a rollback closed."""


@dataclass(frozen=True)
class RolledBack:
    """What a rollback wrote: its record, the population that it closed, and the one after it."""

    row: JournalRow
    closed: PopulationRow | None
    following: Population
    pause: Pause | None
    """That holds on after it: the operator's."""


@dataclass(eq=False)
class Ask:
    """One who waits for a rollback."""

    to_version: int
    reason: str
    written: asyncio.Future[JournalRow] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    done: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its version is published."""

    def refuse(self, error: Exception) -> None:
        """Nothing was written."""
        if not self.written.done():
            self.written.set_exception(error)
            # Nobody may wait for it any more.
            self.written.exception()


async def roll_back(
    updates: Updates, to_version: int, reason: str, timeout: float
) -> tuple[JournalRow, bool]:
    """Brings back the weights of `to_version` as a new version. Returns its record, and whether it is live.

    If it is not live within `timeout` seconds, it goes on by itself, also over a restart. Asking again for
    the version that the last rollback went to changes nothing. Raises ApiError: 400 for a version that is not
    older than the live one, 429 if another rollback is on its way or an update before it takes longer than
    `timeout` seconds, 503 when learning has halted; StoreError if it could not be kept.
    """
    ask = updates.ask_rollback(to_version, reason)
    try:
        async with asyncio.timeout(timeout):
            row = await asyncio.shield(ask.written)
            await ask.done.wait()
            return row, True
    except TimeoutError:
        if ask.written.done():
            return ask.written.result(), False
        updates.withdraw(ask)
        raise busy(f"the update before it took longer than {timeout:g} s; try again", 5) from None


def journal_rollback(
    connection: sa.Connection, plan: Plan, ask: Ask, start_digest: bytes, now: float
) -> RolledBack | JournalRow:
    """Writes the record of a rollback, closes the open population and opens the next one.

    Returns the last record as it is where it says the same already. Raises ApiError 400.
    """
    last = journal.last(connection)
    version = 0 if last is None else last.version
    if last is not None and last.kind == journal.ROLLBACK:
        record = record_of(last)
        assert isinstance(record, RollbackRecord)
        if record.to_version == ask.to_version:
            # A guard that asks for it once more has nowhere else to go.
            guards.stay(connection)
            return last
    if not 0 <= ask.to_version < version:
        raise bad_request(
            f"to_version: {ask.to_version} is not older than version {version}, which is live; give one from "
            f"0 to {version - 1}"
            if version
            else f"to_version: {ask.to_version}: version 0 is live, and nothing is older",
            param="to_version",
            code="no_such_version",
        )
    assert last is not None
    assert last.digest is not None, "what is journalled is applied before anything follows it"
    older = journal.find(connection, ask.to_version)
    digest = start_digest if older is None else older.digest
    assert digest is not None
    data = RollbackRecord(
        version=version + 1,
        to_version=ask.to_version,
        from_digest=last.digest,
        to_digest=digest,
        reason=ask.reason,
    ).SerializeToString(deterministic=True)
    row = JournalRow(
        version=version + 1,
        population=None,
        record=data,
        chain=journal.link(last.chain, data),
        created_at=now,
        kind=journal.ROLLBACK,
    )
    journal.append(connection, row)
    opened = populations.find_open(connection)
    number = -1 if opened is None else opened.number
    if opened is not None:
        populations.close(connection, number, at=now, outcome=OUTCOME, reward_mean=None, reward_spread=None)
    following = plan.population(number + 1, row.version, updates_in_lineage(connection, row.version), now)
    save_population(connection, following)
    guards.rolled_back(connection, row.version)
    closed = None if opened is None else populations.find(connection, number)
    return RolledBack(row, closed, following, guards.pause_of(connection))


def halted(reason: str) -> ApiError:
    """503: the loop that owns the version has ended."""
    return ApiError(503, reason, code="learning_halted", headers={"retry-after": "120"})
