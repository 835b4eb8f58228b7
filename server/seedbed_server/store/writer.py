"""The only writer of a store: a thread that commits many small jobs at once.

Jobs run in the order in which they were submitted, each in a savepoint of its own, so that one that raises
leaves the others alone. A job is confirmed after the commit that holds it. An error of the database itself
(disk full, I/O) fails the whole batch: SQLite may have rolled it back already, and nobody may believe that it
was kept.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError

from seedbed_server.store.errors import StoreBusy, StoreError

if TYPE_CHECKING:
    from typing import TypeAlias

__all__ = ["Job", "Writer"]

T = TypeVar("T")
Job: TypeAlias = Callable[[sa.Connection], T]

MAX_WAITING = 8192
MAX_BATCH = 256


class Writer:
    """Runs jobs against one connection of an engine whose transactions begin as writers."""

    def __init__(self, engine: sa.Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._jobs: queue.Queue[tuple[Job[Any], Future[Any]] | None] = queue.Queue(MAX_WAITING)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="seedbed-store-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Job[T]) -> Future[T]:
        """Queues a job; the future has its result once the commit that holds it is on disk.

        Raises StoreBusy if too many wait, StoreError after close.
        """
        if self._closed:
            raise StoreError(f"store: {self._name} is closed; nothing can be written any more")
        future: Future[T] = Future()
        try:
            self._jobs.put_nowait((job, future))
        except queue.Full:
            raise StoreBusy(f"store: {MAX_WAITING} writes wait for {self._name}; try again later") from None
        return future

    def close(self, timeout: float = 30.0) -> None:
        """Commits what was submitted and ends the thread."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None, timeout=timeout)
            self._thread.join(timeout)

    def _run(self) -> None:
        with self._engine.connect() as connection:
            while True:
                batch, last = self._next_batch()
                if batch:
                    self._commit(connection, batch)
                if last:
                    return

    def _next_batch(self) -> tuple[list[tuple[Job[Any], Future[Any]]], bool]:
        batch: list[tuple[Job[Any], Future[Any]]] = []
        item = self._jobs.get()
        while item is not None:
            batch.append(item)
            if len(batch) == MAX_BATCH:
                return batch, False
            try:
                item = self._jobs.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _commit(self, connection: sa.Connection, batch: list[tuple[Job[Any], Future[Any]]]) -> None:
        outcomes: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            with connection.begin():
                for job, future in batch:
                    outcomes.append((future, *_attempt(connection, job)))
        except Exception as error:  # noqa: BLE001
            failure = StoreError(
                f"store: {self._name} could not be written ({_reason(error)}); nothing of this was kept. "
                "Make room or repair the disk, then try again"
            )
            failure.__cause__ = error
            for _, future in batch:
                future.set_exception(failure)
            return
        for future, result, problem in outcomes:
            if problem is None:
                future.set_result(result)
            else:
                future.set_exception(problem)


def _attempt(connection: sa.Connection, job: Job[Any]) -> tuple[Any, BaseException | None]:
    first: DBAPIError | None = None
    try:
        with connection.begin_nested():
            try:
                return job(connection), None
            except DBAPIError as error:
                first = error
                raise
    except IntegrityError as error:
        return None, error
    except DBAPIError as error:
        # What follows the first error (a savepoint that is gone with its transaction) only hides it.
        raise first or error from None
    except Exception as error:  # noqa: BLE001
        return None, error


def _reason(error: Exception) -> str:
    return str(error.orig) if isinstance(error, DBAPIError) else str(error)
