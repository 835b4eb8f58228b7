"""`seedbed replay`: a fresh engine, the base, the journal; are these the weights that were served?"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

import grpc.aio

from seedbed.v1 import engine_pb2 as pb
from seedbed.v1.engine_pb2_grpc import EngineServiceStub
from seedbed_server.engine.config import ConfigError, EngineConfig
from seedbed_server.engine.process import EngineRefusedError
from seedbed_server.gateway.child import ChildFactory
from seedbed_server.gateway.link_types import CALL_SECONDS, HEARTBEAT_SECONDS, RESTORE_SECONDS, Child, connect
from seedbed_server.models import ModelError, ModelSource, resolve_model
from seedbed_server.store import Store, StoreError, StoreMismatch, journal, runs

if TYPE_CHECKING:
    from pathlib import Path

    import sqlalchemy as sa

    from seedbed.v1.engine_pb2_grpc import EngineServiceAsyncStub
    from seedbed_server.store.rows import JournalRow, RunRow

__all__ = ["replay"]

OK, NO, USAGE, REFUSED = 0, 1, 2, 3


def replay(store: Path, model: str, *, start_seconds: float = 600.0) -> int:
    """Prints the digest of the store and the one that a replay makes. Returns 0 only if they are equal.

    1: they differ. 2: the store cannot be replayed. 3: the model or the engine cannot be used. The store must
    not be served meanwhile.
    """
    with contextlib.ExitStack() as stack:
        try:
            source = resolve_model(model)
            opened = stack.enter_context(Store(store))
            run, rows = opened.read_now(_kept)
            if run is None:
                return _complain(f"store: {store} holds no run yet; serve with it first", USAGE)
            children = ChildFactory(opened.path, lambda address: _config(run, source, address))
            stack.callback(children.close)
            child = children()
            stack.callback(child.stop)
            applied = [row for row in rows if row.digest is not None]
            _say(f"Starting a fresh engine to replay {len(applied)} updates. Its log is {children.log_path}")
            child.start(start_seconds)
            return asyncio.run(_compare(child, run, applied, str(opened.path)))
        except (ModelError, EngineRefusedError) as error:
            return _complain(str(error), REFUSED)
        except (ConfigError, StoreError) as error:
            return _complain(str(error), REFUSED if isinstance(error, StoreMismatch) else USAGE)
        except grpc.aio.AioRpcError as error:
            return _complain(f"the engine could not replay the journal ({error.details()})", REFUSED)


def _kept(connection: sa.Connection) -> tuple[RunRow | None, list[JournalRow]]:
    return runs.find(connection), journal.verified(connection)


async def _compare(child: Child, run: RunRow, rows: list[JournalRow], store: str) -> int:
    async with connect(child.address) as channel:
        stub = EngineServiceStub(channel)
        term = run.term + 1
        loaded = await stub.Describe(pb.DescribeRequest(term=term), timeout=CALL_SECONDS)
        runs.check_identity(run, _identity(run, loaded), store)
        expected = run.start_digest if not rows else rows[-1].digest or b""
        records = [pb.UpdateRecord.FromString(row.record) for row in rows]
        beat = asyncio.ensure_future(_beat(stub, term))
        try:
            await stub.Restore(pb.RestoreRequest(term=term, records=records), timeout=RESTORE_SECONDS)
            # Every weight is read again: the digest is not the one that was kept on the way.
            answer = await stub.Digest(pb.DigestRequest(), timeout=RESTORE_SECONDS)
        finally:
            beat.cancel()
    state = answer.state
    _say(f"version of the journal  {len(rows)}\nversion of the replay   {state.version}")
    _say(f"digest of the journal   {expected.hex()}\ndigest of the replay    {state.digest.hex()}")
    equal = (state.version, state.digest) == (len(rows), expected)
    _say("equal" if equal else "NOT EQUAL: these are not the weights that were served")
    return OK if equal else NO


async def _beat(stub: EngineServiceAsyncStub, term: int) -> None:
    """An engine ends itself when it hears nobody."""
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        with contextlib.suppress(grpc.aio.AioRpcError):
            await stub.Describe(pb.DescribeRequest(term=term), timeout=CALL_SECONDS)


def _config(run: RunRow, source: ModelSource, address: str) -> EngineConfig:
    kept = run.settings
    return EngineConfig(
        model_path=source.path,
        model_name=source.served_name,
        address=address,
        device=kept.get("device", "auto"),
        dtype=run.dtype,
        scope=run.scope,
        exclude=list(kept.get("exclude", [])),
        rounding=kept.get("rounding", "stochastic"),
        log_level="warning",
    )


def _identity(run: RunRow, loaded: pb.DescribeResponse) -> RunRow:
    return type(run)(
        created_at=run.created_at,
        model=loaded.model,
        base_digest=loaded.base_digest,
        start_digest=run.start_digest,
        dtype=loaded.dtype,
        scope=loaded.scope,
        noise_version=loaded.noise_version,
        rank=loaded.rank,
        settings={},
        term=0,
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _complain(text: str, code: int) -> int:
    sys.stderr.write(f"seedbed: {text}\n")
    return code
