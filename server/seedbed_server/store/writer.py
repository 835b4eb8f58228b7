"""The only writer of a store: a thread that commits many small jobs at once.

Jobs run in the order in which they were submitted, each in a savepoint of its own, so that one that raises
leaves the others alone. A job is confirmed after the commit that holds it. An error of the database itself
(disk full, I/O) fails the whole batch: it may have been rolled back already, and nobody may believe that it
was kept. Where a commit was sent and not answered, the database is asked what became of it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from seedbed_server.store.errors import StoreBusy, StoreError, reason_of

if TYPE_CHECKING:
    from typing import TypeAlias

__all__ = ["Job", "Settling", "Writer"]

T = TypeVar("T")
Job: TypeAlias = Callable[[sa.Connection], T]

MAX_WAITING = 8192
MAX_BATCH = 256


class Settling(Protocol):
    """For databases whose answer to a commit may be lost on its way."""

    def mark(self, connection: sa.Connection) -> bytes:
        """Something to ask for the open transaction with."""
        ...

    def committed(self, mark: bytes) -> bool | None:
        """Whether it was committed; None if that cannot be known. Waits, bounded."""
        ...


class Writer:
    """Runs jobs against one connection of an engine whose transactions begin as writers."""

    def __init__(self, engine: sa.Engine, name: str, settling: Settling | None = None) -> None:
        self._engine = engine
        self._name = name
        self._settling = settling
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
        last = False
        while not last:
            batch, last = self._next_batch()
            if batch:
                self._commit(batch)

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

    def _commit(self, batch: list[tuple[Job[Any], Future[Any]]]) -> None:
        outcomes: list[tuple[Future[Any], Any, BaseException | None]] = []
        mark: bytes | None = None
        try:
            # From a pool of one: the same connection, unless it was lost.
            with self._engine.connect() as connection, connection.begin():
                for job, future in batch:
                    outcomes.append((future, *_attempt(connection, job)))
                if self._settling is not None:
                    mark = self._settling.mark(connection)
        except Exception as error:  # noqa: BLE001
            committed = None if self._settling is None or mark is None else self._settling.committed(mark)
            if not committed:
                failure = self._failure(error, mark is not None and committed is None)
                for _, future in batch:
                    future.set_exception(failure)
                return
        for future, result, problem in outcomes:
            if problem is None:
                future.set_result(result)
            else:
                future.set_exception(problem)

    def _failure(self, error: Exception, unknown: bool) -> StoreError:
        if isinstance(error, StoreError):
            return error
        kept = "it may or may not be kept" if unknown else "nothing of this was kept"
        remedy = "Make room or repair the disk" if self._settling is None else "Look at the database"
        failure = StoreError(
            f"store: {self._name} could not be written ({reason_of(error)}); {kept}. {remedy}, then try again"
        )
        failure.__cause__ = error
        return failure


def _attempt(connection: sa.Connection, job: Job[Any]) -> tuple[Any, BaseException | None]:
    # Savepoints by their own words: SQLAlchemy's cost as much as the job of a completion.
    connection.exec_driver_sql("SAVEPOINT job")
    try:
        result = job(connection)
    except Exception as error:
        try:
            connection.exec_driver_sql("ROLLBACK TO SAVEPOINT job")
            connection.exec_driver_sql("RELEASE SAVEPOINT job")
        except DBAPIError as lost:
            # The savepoint is gone with its transaction, which only hides why.
            raise (error if isinstance(error, DBAPIError) else lost) from None
        if isinstance(error, DBAPIError) and not isinstance(error, (IntegrityError, DataError)):
            raise
        return None, error
    connection.exec_driver_sql("RELEASE SAVEPOINT job")
    return result, None
