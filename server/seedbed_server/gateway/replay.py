"""`seedbed replay`: a fresh engine, the base, the journal; are these the weights that were served?"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from seedbed_server.gateway.offline import NO, OK, USAGE, complain, fresh_engine, say, start, tried
from seedbed_server.gateway.ways import base_way
from seedbed_server.models import resolve_model
from seedbed_server.store import Store, journal, runs
from seedbed_server.store.lineage import require_sound

if TYPE_CHECKING:
    import contextlib

    import sqlalchemy as sa

    from seedbed_server.gateway.link_types import Child
    from seedbed_server.gateway.ways import Way
    from seedbed_server.store import Place
    from seedbed_server.store.rows import JournalRow, RunRow

__all__ = ["kept", "replay"]


def replay(store: Place, model: str) -> int:
    """Prints the digest of the store and the one that a replay makes. Returns 0 only if they are equal.

    1: they differ. 2: the store cannot be replayed. 3: the model or the engine cannot be used. The store must
    not be served meanwhile. Snapshots are not used.
    """

    def work(stack: contextlib.ExitStack) -> int:
        source = resolve_model(model)
        opened = stack.enter_context(Store(store))
        run, rows = opened.read_now(kept)
        if run is None:
            return complain(f"store: {store.name} holds no run yet; serve with it first", USAGE)
        version = len([row for row in rows if row.digest is not None])
        way = base_way(rows, version, run.start_digest)
        child, _ = start(stack, opened.path, source, run, f"replay {len(way.records)} updates")
        return asyncio.run(_compare(child, run, way, store.name))

    return tried(work, "replay the journal")


def kept(connection: sa.Connection) -> tuple[RunRow | None, list[JournalRow]]:
    """The run and its whole journal. Raises StoreError for a journal that is damaged."""
    run, rows = runs.find(connection), journal.whole(connection)
    require_sound(rows, None if run is None else run.start_digest)
    return run, rows


async def _compare(child: Child, run: RunRow, way: Way, store: str) -> int:
    async with fresh_engine(child, run.term + 1) as fresh:
        runs.check_identity(run, fresh.identity(), store)
        state = await fresh.restore(way.unchecked())
    say(f"version of the journal  {way.version}\nversion of the replay   {state.version}")
    say(f"digest of the journal   {way.digest.hex()}\ndigest of the replay    {state.digest.hex()}")
    equal = (state.version, state.digest) == (way.version, way.digest)
    say("equal" if equal else "NOT EQUAL: these are not the weights that were served")
    return OK if equal else NO
