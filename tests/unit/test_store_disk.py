"""Stores on disks that take nothing: real file systems, small ones."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from seedbed_server.store import Store, StoreError, learning, tables


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no right to mount a small disk here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@contextlib.contextmanager
def ballast(disk: Path) -> Iterator[None]:
    """Not a byte is left inside."""
    with (disk / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(512))
    yield
    (disk / "ballast").unlink()


def test_a_full_disk_keeps_what_was_said_and_nothing_else(disk: Path) -> None:
    def put(name: str) -> None:
        store.submit(lambda c: learning.put(c, name, "x" * 8192)).result(10)

    def names(connection: sa.Connection) -> list[str]:
        return sorted(connection.execute(sa.select(tables.learning.c.name)).scalars())

    told = ["before"]
    with Store(disk / "store.sqlite") as store:
        put("before")
        with ballast(disk):
            refusal = None
            while refusal is None and len(told) < 1000:
                try:
                    put(f"told {len(told)}")
                    told.append(f"told {len(told)}")
                except StoreError as error:
                    refusal = str(error)
            assert refusal is not None
            assert "store.sqlite could not be written" in refusal
            assert "nothing of this was kept. Make room" in refusal
            assert store.read_now(names) == sorted(told)
        put("after")
    with Store(disk / "store.sqlite") as store:
        assert store.read_now(names) == sorted([*told, "after"])


def test_a_start_on_a_full_disk_says_so_and_succeeds_when_there_is_room(disk: Path) -> None:
    with Store(disk / "store.sqlite"):
        pass
    with ballast(disk), pytest.raises(StoreError, match=r"\d bytes are left on its disk; make room"):
        Store(disk / "store.sqlite")
    with Store(disk / "store.sqlite") as store:
        store.submit(lambda c: learning.put(c, "after", 1)).result(10)


def test_a_start_on_a_read_only_disk_says_so(disk: Path) -> None:
    with Store(disk / "store.sqlite"):
        pass
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(StoreError, match=r"Read-only file system\); choose a --store that you may write"):
        Store(disk / "store.sqlite")
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    with Store(disk / "store.sqlite"):
        pass
