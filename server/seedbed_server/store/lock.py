"""One process for one store: a lock file beside it, held with flock as long as the store is open."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from seedbed_server.store.errors import StoreError, StoreLocked

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FileLock"]


class FileLock:
    """Held from construction to `release`, or to the end of the process, however that comes."""

    def __init__(self, store: Path) -> None:
        self._path = store.with_name(store.name + ".lock")
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"store: {self._path} cannot be opened ({error.strerror}); "
                "choose a --store that you may write"
            ) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self._file, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise StoreLocked(
                f"store: {store} is in use by process {holder}; stop that server, or choose another --store"
            ) from None
        # For people only: on a full disk the lock holds without it.
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Lets the next process in. The file stays: removing it would let two processes lock two files."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
