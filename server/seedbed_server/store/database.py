"""Opening a store, and the two ways to use it: jobs that write, one after the other, and jobs that read."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.exc import DBAPIError

from seedbed_server.store.errors import StoreError
from seedbed_server.store.lock import FileLock
from seedbed_server.store.writer import Job, Writer

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["Store"]

T = TypeVar("T")

MIGRATIONS = Path(__file__).parent / "migrations"


class Store:
    """One SQLite file (WAL, synchronous=FULL), open in this process and in no other.

    Raises StoreLocked if another process has it open, StoreError if it cannot be read, written or brought up
    to date; all with a remedy.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).expanduser().resolve()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"store: the folder of {self.path} cannot be made ({error.strerror}); choose another --store"
            ) from None
        self._lock = FileLock(self.path)
        self._engines: list[sa.Engine] = []
        try:
            writing = self._engine(writes=True)
            _migrate(writing)
            self._reading = self._engine(writes=False)
        except DBAPIError as error:
            self._dispose()
            raise StoreError(
                f"store: {self.path} cannot be used ({error.orig}); check the disk and the rights, or "
                "move the file away and start with a new one"
            ) from None
        except BaseException:
            self._dispose()
            raise
        self._writer = Writer(writing, str(self.path))
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="seedbed-store-reader")

    def submit(self, job: Job[T]) -> Future[T]:
        """Queues a write; the future has its result after the commit. Raises StoreBusy, StoreError."""
        return self._writer.submit(job)

    async def write(self, job: Job[T], timeout: float = 30.0) -> T:
        """Runs a job in the writer's transaction and returns after the commit that holds it.

        A caller that is cancelled does not take its job back. Raises what the job raises, StoreBusy, or
        StoreError when nothing was kept, or when no confirmation came within `timeout` seconds.
        """
        waiting = asyncio.wrap_future(self.submit(job))
        try:
            return await asyncio.wait_for(asyncio.shield(waiting), timeout)
        except TimeoutError:
            waiting.add_done_callback(_forget)
            raise StoreError(
                f"store: {self.path} did not confirm a write within {timeout:g} s; it may or may not be "
                "kept. Post again with the same reward_id"
            ) from None
        except asyncio.CancelledError:
            waiting.add_done_callback(_forget)
            raise

    async def read(self, job: Job[T]) -> T:
        """Runs a job on a connection that only reads and sees what was committed before."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self.read_now, job)

    def read_now(self, job: Job[T]) -> T:
        """Like `read`, in the calling thread."""
        try:
            with self._reading.connect() as connection:
                return job(connection)
        except DBAPIError as error:
            raise StoreError(
                f"store: {self.path} could not be read ({error.orig}); check the disk"
            ) from error

    def close(self) -> None:
        """Commits what was submitted, closes the file and lets the next process in."""
        self._writer.close()
        self._readers.shutdown()
        self._dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _engine(self, *, writes: bool) -> sa.Engine:
        engine = sa.create_engine(sa.URL.create("sqlite", database=str(self.path)))
        self._engines.append(engine)

        # The driver's own transactions start too late and end too early for us: it is put into autocommit,
        # and BEGIN is said here.
        @sa.event.listens_for(engine, "connect")
        def _connect(connection: Any, _record: Any) -> None:
            connection.isolation_level = None
            cursor = connection.cursor()
            if writes:
                cursor.execute("PRAGMA journal_mode=WAL")
            else:
                cursor.execute("PRAGMA query_only=ON")
            for pragma in ("synchronous=FULL", "foreign_keys=ON", "busy_timeout=10000"):
                cursor.execute(f"PRAGMA {pragma}")
            cursor.close()

        @sa.event.listens_for(engine, "begin")
        def _begin(connection: sa.Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine

    def _dispose(self) -> None:
        for engine in self._engines:
            engine.dispose()
        self._lock.release()


def _migrate(engine: sa.Engine) -> None:
    """Brings the tables up to date, in one transaction."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _forget(waiting: asyncio.Future[Any]) -> None:
    """Takes the outcome of a write that nobody waits for any more, so that asyncio does not complain."""
    if not waiting.cancelled():
        waiting.exception()
