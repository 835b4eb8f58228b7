"""Bringing an engine to a version that is in the journal: by an update, or by a restore after a rollback.

A record may be sent as often as it takes: the engine answers one that it has applied as the first time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from seedbed.v1 import engine_pb2 as pb
from seedbed_server.gateway.errors import ApiError
from seedbed_server.gateway.link_types import RESTORE_SECONDS, CallLost, awaited
from seedbed_server.store import StoreError, journal
from seedbed_server.store.lineage import update_of
from seedbed_server.store.rows import Applied, JournalRow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from seedbed.v1.engine_pb2_grpc import EngineServiceAsyncStub
    from seedbed_server.gateway.engine_link import EngineLink
    from seedbed_server.gateway.snapshots import Snapshots
    from seedbed_server.store import Store

__all__ = ["Applier", "Halt"]

log = structlog.get_logger(__name__)

APPLY_SECONDS = 600.0
REFUSALS = 3
_TRANSIENT = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
}


class _Again(Exception):
    """This attempt came to nothing; the next one may not."""


class Halt(Exception):
    """The engine will not apply this record."""


class Applier:
    """Sends records of one store to its engine."""

    def __init__(self, store: Store, snapshots: Snapshots) -> None:
        self._store = store
        self._snapshots = snapshots

    async def apply(
        self,
        link: EngineLink,
        row: JournalRow,
        start_digest: bytes,
        publish: Callable[[JournalRow, Applied], Awaitable[None]],
    ) -> None:
        """Brings the engine to the version of a record and publishes it, however often that takes.

        Raises Halt if no engine will.
        """
        refused = 0
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((_Again, ApiError, StoreError)),
            wait=wait_random_exponential(multiplier=0.2, max=10.0),
            before_sleep=_log_retry,
            reraise=True,
        ):
            with attempt:
                stub = await link.wait_ready(120.0)
                try:
                    if row.kind == journal.ROLLBACK:
                        applied = await self._restore(stub, link, row, start_digest)
                    else:
                        applied = await self._update(stub, link, row)
                except (CallLost, grpc.aio.UsageError) as lost:
                    # Its channel was closed under the call, or just before.
                    raise _Again(f"version {row.version}: {lost}") from None
                except grpc.aio.AioRpcError as error:
                    link.suspect()
                    what = f"version {row.version}: {error.code().name}: {error.details()}"
                    if error.code() in _TRANSIENT:
                        raise _Again(what) from None
                    refused += 1
                    if refused >= REFUSALS:
                        raise Halt(
                            f"the engine refuses the {row.kind} to {what}. Nothing is explored until the "
                            "server is started again; the journal has the record"
                        ) from None
                    link.condemn(f"it refuses the {row.kind} to {what}")
                    raise _Again(what) from None
                await publish(row, applied)

    async def _update(self, stub: EngineServiceAsyncStub, link: EngineLink, row: JournalRow) -> Applied:
        record = update_of(row)
        request = pb.ApplyUpdateRequest(
            term=link.term,
            from_version=record.version - 1,
            from_digest=record.from_digest,
            record=record,
        )
        answer = await awaited(stub.ApplyUpdate(request, timeout=APPLY_SECONDS))
        return Applied(
            applied_at=time.time(),
            digest=answer.state.digest,
            seconds=answer.seconds,
            update_seconds=answer.update_seconds,
            digest_seconds=answer.digest_seconds,
            cosine=answer.cosine if answer.HasField("cosine") else None,
            retracted=answer.retracted,
        )

    async def _restore(
        self, stub: EngineServiceAsyncStub, link: EngineLink, row: JournalRow, start_digest: bytes
    ) -> Applied:
        rows = await self._store.read(journal.whole)
        way = await self._snapshots.way_to(rows, row.version, start_digest)
        begun = time.monotonic()
        try:
            answer = await awaited(stub.Restore(way.request(link.term), timeout=RESTORE_SECONDS))
        except grpc.aio.AioRpcError as error:
            if error.code() not in _TRANSIENT and way.folder:
                # If it was the snapshot, the next attempt goes another way.
                await self._snapshots.recheck(way, rows, start_digest)
            raise
        if answer.state.digest != way.digest:
            raise Halt(
                f"the engine made version {row.version} with the digest {answer.state.digest.hex()}, and "
                f"{way.digest.hex()} is wanted; restore the store or the model from a backup"
            )
        return Applied(applied_at=time.time(), digest=answer.state.digest, seconds=time.monotonic() - begun)


def _log_retry(state: RetryCallState) -> None:
    problem = state.outcome.exception() if state.outcome else None
    log.warning("update not applied yet", reason=str(problem), attempt=state.attempt_number)
