"""A PostgreSQL of the tests' own: a cluster in a temporary folder, reached through a socket in it."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

__all__ = ["REQUIRED", "Cluster", "binaries", "cluster", "needed"]

REQUIRED = "SEEDBED_TEST_POSTGRES"
"""Set to `required`, a machine without PostgreSQL fails the tests instead of skipping them."""
DEBIAN = Path("/usr/lib/postgresql")
USER = "seedbed"
START_SECONDS = 60.0


def binaries() -> Path | None:
    """The folder with initdb and postgres, or None where there is none."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    versions = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return versions[-1].parent if versions else None


def needed() -> Path:
    """The binaries; skips the test, or fails it where they are required."""
    found = binaries()
    if found is None:
        reason = "PostgreSQL is not installed (Debian and Ubuntu: apt install postgresql)"
        if os.environ.get(REQUIRED) == "required":
            pytest.fail(f"{REQUIRED}=required: {reason}")
        pytest.skip(reason)
    return found


class Cluster:
    """One server and its databases. It waits for the disk as a real one does."""

    def __init__(self, folder: Path, binary: Path) -> None:
        self._folder, self._binary = folder, binary
        self._data, self._log = folder / "data", folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._as: list[str] = []
        if os.geteuid() == 0:
            # It refuses to run as root. By a program, because a fork that changes the user runs handlers of
            # gRPC, which may crash in the child of a process with threads.
            nobody = pwd.getpwnam("postgres" if _exists("postgres") else "nobody")
            self._as = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
            folder.chmod(0o755)
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        options = f"-D {self._data} -U {USER} -A trust --no-sync -E UTF8 --no-locale"
        command = [*self._as, str(binary / "initdb"), *options.split()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Starts the server, also after `kill`, and waits until it answers."""
        settings = {"listen_addresses": "", "unix_socket_directories": str(self._folder), "fsync": "on"}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [*self._as, str(self._binary / "postgres"), "-D", str(self._data), *options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._folder, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while self._run("psql", "postgres", "-c", "SELECT 1", check=False) != 0:
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            assert time.monotonic() < deadline, self._log.read_text()[-3000:]
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL to the postmaster and all of its children, as a machine that loses its power would."""
        assert self._process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            # Each child has a session of its own.
            children = psutil.Process(self._process.pid).children(recursive=True)
            for process in (self._process, *children):
                with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(children, 30)
        self._process.wait(30)

    def stop(self) -> None:
        """Ends it, at once."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"seedbed_{next(self._numbers)}"
        self._run("createdb", name)
        return f"postgresql://{USER}@/{name}?host={self._folder}"

    def _run(self, program: str, *arguments: str, check: bool = True) -> int:
        command = [self._binary / program, "-h", str(self._folder), "-U", USER, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done.returncode


@contextlib.contextmanager
def cluster(binary: Path) -> Iterator[Cluster]:
    """A server that runs as long as the context lasts; nothing of it is left."""
    # Short, because of the socket, and not below pytest's own folders, into which other users may not look.
    folder = Path(tempfile.mkdtemp(prefix="sbpg-"))
    made = None
    try:
        made = Cluster(folder, binary)
        made.start()
        yield made
    finally:
        if made is not None:
            made.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
