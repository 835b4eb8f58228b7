"""Takes a snapshot every so many updates, checks it, and prunes those before it. Nothing waits for this: what
goes wrong is a warning, and serving and learning go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import structlog

from seedbed.v1 import engine_pb2 as pb
from seedbed_server.gateway.link_types import awaited
from seedbed_server.gateway.ways import check_snapshot, find_way, folder_for, tidy
from seedbed_server.store import StoreError, snapshots
from seedbed_server.store.lineage import digest_of
from seedbed_server.store.rows import SnapshotRow
from seedbed_server.store.snapshot_folders import remove, root_of, set_aside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seedbed_server.gateway.engine_link import EngineLink
    from seedbed_server.gateway.ways import Way
    from seedbed_server.store import Store
    from seedbed_server.store.rows import JournalRow

__all__ = ["Snapshots"]

log = structlog.get_logger(__name__)

SNAPSHOT_SECONDS = 1800.0
AGAIN_SECONDS = 60.0


class Snapshots:
    """Owns the folders beside one store while it is served.

    Args:
        every: updates from one snapshot to the next; 0: none are taken.
        keep: how many of the newest are kept in any case; see `snapshots.kept` for older ones.
    """

    def __init__(self, store: Store, every: int, keep: int) -> None:
        self._store, self._every, self._keep = store, every, keep
        self._published = asyncio.Event()
        self._version = 0
        self.newest: SnapshotRow | None = None
        self.problem: str | None = None
        """Why the last one could not be taken, until one is."""

    def published(self, version: int) -> None:
        """A version is live."""
        self._version = version
        self._published.set()

    async def look_around(self, rows: Sequence[JournalRow], start_digest: bytes) -> None:
        """Before an engine starts to serve: what is there, and what was left half-done. Raises StoreError."""
        try:
            await asyncio.to_thread(tidy, self._store, rows, start_digest)
        except OSError as error:
            self._trouble(f"{root_of(self._store.path)} cannot be looked at ({error.strerror})")
        await self._note()

    async def way_to(self, rows: Sequence[JournalRow], version: int, start_digest: bytes) -> Way:
        """See `find_way`; what it sets aside is no longer the newest. Raises StoreError."""
        way = await asyncio.to_thread(find_way, self._store, rows, version, start_digest)
        await self._note()
        return way

    async def recheck(self, way: Way, rows: Sequence[JournalRow], start_digest: bytes) -> bool:
        """Reads the snapshot that a way begins with once more. False: it is damaged and was set aside."""
        if not way.folder:
            return True
        version = way.folder_version
        digest = digest_of(rows, version, start_digest)
        found = await asyncio.to_thread(check_snapshot, self._store, Path(way.folder).name, version, digest)
        await self._note()
        return found is not None

    async def run(self, link: EngineLink) -> None:
        """Takes snapshots until it is cancelled."""
        if not self._every:
            return
        while True:
            await self._published.wait()
            self._published.clear()
            version = self._version
            before = 0 if self.newest is None else self.newest.version
            if version - before < self._every:
                continue
            try:
                await self._take(link, version)
            except Exception as error:  # noqa: BLE001
                if not _overtaken(error):
                    text = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
                    self._trouble(f"version {version}: {text}")
                await self._wait_for_another(version)

    async def _take(self, link: EngineLink, version: int) -> None:
        folder = await asyncio.to_thread(folder_for, self._store, version)
        if folder.exists():
            await asyncio.to_thread(set_aside, folder, "it is on no record")
        started = time.monotonic()
        request = pb.SnapshotRequest(folder=str(folder), term=link.term, version=version)
        answer = await awaited(link.ready.Snapshot(request, timeout=SNAPSHOT_SECONDS))
        weights = await asyncio.to_thread(
            check_snapshot, self._store, folder.name, version, answer.state.digest
        )
        if weights is None:
            raise StoreError(f"the snapshot {folder} did not read back as it was written; check the disk")
        row = SnapshotRow(version, folder.name, weights.digest, weights.bytes, time.time())
        await self._store.write(lambda connection: snapshots.insert(connection, row))
        self.problem = None
        log.info(
            "snapshot taken",
            version=version,
            bytes=weights.bytes,
            seconds=round(time.monotonic() - started, 3),
        )
        await self._note()
        await self._prune()

    async def _wait_for_another(self, version: int) -> None:
        """The next version may fit where this one did not; without one, the disk may have room by then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_SECONDS):
                while self._version == version:
                    self._published.clear()
                    await self._published.wait()
        self._published.set()

    async def _prune(self) -> None:
        rows = await self._store.read(snapshots.good)
        keep = snapshots.kept((row.version for row in rows), self._keep)
        for row in rows:
            if row.version not in keep:
                # Off the record first: what is left of a folder is then recognised as such.
                await self._store.write(partial(snapshots.mark, folder=row.folder, state=snapshots.PRUNED))
                await asyncio.to_thread(remove, root_of(self._store.path) / row.folder)

    async def _note(self) -> None:
        rows = await self._store.read(snapshots.good)
        self.newest = rows[-1] if rows else None

    def _trouble(self, problem: str) -> None:
        self.problem = f"no snapshot was taken ({problem}); serving and learning go on"
        log.warning("snapshot not taken", problem=problem)


def _overtaken(error: Exception) -> bool:
    """Whether an update came in between: the next version is taken instead."""
    if not isinstance(error, grpc.aio.AioRpcError) or error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
        return False
    return (error.details() or "").startswith("version:")
