"""Opening a store, and the two ways to use it: jobs that write, one after the other, and jobs that read."""

from __future__ import annotations

import asyncio
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.exc import DBAPIError

from seedbed_server.store import postgres, sqlite
from seedbed_server.store.errors import StoreError, reason_of
from seedbed_server.store.lock import FileLock
from seedbed_server.store.place import Place, place_of
from seedbed_server.store.writer import Job, Writer

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["Store"]

T = TypeVar("T")

ROOM_BYTES = 1 << 20
"""With less on its disk, a store that cannot be opened most likely has no room."""
MIGRATIONS = Path(__file__).parent / "migrations"


class Store:
    """One store, open in this process and in no other: an SQLite file (WAL, synchronous=FULL), or a
    PostgreSQL database.

    Args:
        place: where it is; a path or a URL is taken as `place_of` does.

    Raises StoreLocked if another process has it open, StoreError if it cannot be read, written or brought up
    to date; all with a remedy.
    """

    def __init__(self, place: Place | Path | str) -> None:
        self.place = place = place if isinstance(place, Place) else place_of(place)
        self.path = place.beside
        """The file, or for a database the path that files beside it begin with."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"store: the folder of {self.path} cannot be made ({error.strerror}); choose another "
                + ("--store" if place.is_file else "--store-folder")
            ) from None
        self._lock = FileLock(self.path)
        self._engines: list[sa.Engine] = []
        try:
            writing = self._engine(writes=True)
            _migrate(writing)
            self._reading = self._engine(writes=False)
        except (DBAPIError, ModuleNotFoundError) as error:
            self._dispose()
            raise StoreError(_unusable(place, error)) from None
        except BaseException:
            self._dispose()
            raise
        self._writer = Writer(writing, place.name, None if place.is_file else postgres.Outcomes(writing))
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
            done, _ = await asyncio.wait((waiting,), timeout=timeout)
        except asyncio.CancelledError:
            waiting.add_done_callback(_forget)
            raise
        if not done:
            waiting.add_done_callback(_forget)
            raise StoreError(
                f"store: {self.place.name} did not confirm a write within {timeout:g} s; it may or may not "
                "be kept. Post again with the same reward_id"
            )
        return waiting.result()

    async def read(self, job: Job[T]) -> T:
        """Runs a job on a connection that only reads and sees what was committed before."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self.read_now, job)

    def read_now(self, job: Job[T]) -> T:
        """Like `read`, in the calling thread."""
        try:
            with self._reading.connect() as connection:
                return job(connection)
        except DBAPIError as error:
            check = "the disk" if self.place.is_file else "the database"
            raise StoreError(
                f"store: {self.place.name} could not be read ({reason_of(error)}); check {check}"
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
        place = self.place
        if place.is_file:
            engine = sqlite.engine(place.url, writes=writes)
        else:
            engine = postgres.engine(place, writes=writes)
        self._engines.append(engine)
        return engine

    def _dispose(self) -> None:
        for engine in self._engines:
            engine.dispose()
        self._lock.release()


def _unusable(place: Place, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return (
            f"store: {place.name} needs {error.name}, which is not installed: pip install 'seedbed[server]'"
        )
    reason = reason_of(error)
    if place.is_file:
        left = shutil.disk_usage(place.beside.parent).free
        if left < ROOM_BYTES:
            return (
                f"store: {place.name} cannot be used ({reason}): {left} bytes are left on its disk; make "
                "room, then start again"
            )
        return (
            f"store: {place.name} cannot be used ({reason}); check the disk and the rights, or move the file "
            "away and start with a new one"
        )
    return (
        f"store: {place.name} cannot be used ({reason}); check that the database runs and exists, and that "
        "this user may log in and make tables in it"
    )


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
