"""Folders of snapshots beside a store: read back and compared before anybody trusts them, set aside if they
are not what they should be, and never deleted in silence.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from seedbed_server.digests import FileDamaged, file_sums, weights_digest

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "SnapshotDamaged",
    "Weights",
    "name_of",
    "read_weights",
    "remove",
    "root_of",
    "set_aside",
    "strays",
    "version_of",
]

log = structlog.get_logger(__name__)

NOTE = "seedbed.json"
ASIDE = ".aside"
_NAME = re.compile(r"v(\d{8,19})")


class SnapshotDamaged(ValueError):
    """A folder that is no whole snapshot; the message says why."""


@dataclass(frozen=True)
class Weights:
    """What a folder holds, read from its files."""

    version: int
    """As its note says."""
    digest: bytes
    """Of the weights in the files."""
    bytes: int


def root_of(store: Path) -> Path:
    """The folder of a store's snapshots; it need not be there."""
    return store.with_name(store.name + ".snapshots")


def name_of(version: int) -> str:
    """The name of a snapshot's folder."""
    return f"v{version:08d}"


def version_of(name: str) -> int | None:
    """The version that a folder's name stands for, or None for any other name."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])


def read_weights(folder: Path) -> Weights:
    """Reads every weight of a folder and computes their digest. Raises SnapshotDamaged."""
    try:
        note = json.loads((folder / NOTE).read_text())
        base = bytes.fromhex(note["base_digest"])
        version, scope, dtype = int(note["version"]), str(note["scope"]), str(note["dtype"])
        files = sorted(folder.glob("*.safetensors"))
        digest = weights_digest(
            (item for file in files for item in file_sums(file)), base=base, scope=scope, dtype=dtype
        )
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    except (OSError, ValueError, KeyError, TypeError, FileDamaged) as error:
        reason = f"{type(error).__name__}: {error}" if isinstance(error, KeyError | TypeError) else str(error)
        raise SnapshotDamaged(reason) from None
    return Weights(version, digest, size)


def set_aside(folder: Path, reason: str) -> Path:
    """Renames a folder so that nobody takes it for a snapshot. Returns where it lies. Raises OSError."""
    for number in range(1, 10_000):
        target = folder.with_name(f"{folder.name.lstrip('.')}{ASIDE}-{number}")
        if not target.exists():
            break
    folder.rename(target)
    log.warning(
        "snapshot set aside", folder=str(folder), now=str(target), reason=reason, remedy="delete it by hand"
    )
    return target


def strays(root: Path, known: set[str]) -> list[Path]:
    """Folders that are neither known snapshots nor set aside: half-written, or never put on record."""
    try:
        entries = sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.is_symlink())
    except FileNotFoundError:
        return []
    return [entry for entry in entries if entry.name not in known and ASIDE not in entry.name]


def remove(folder: Path) -> None:
    """Deletes a snapshot that the rule does not keep. Half of it has never its name. Raises OSError."""
    doomed = folder.with_name(f".{folder.name}.pruned-{os.getpid()}")
    folder.rename(doomed)
    shutil.rmtree(doomed)
    log.info("snapshot pruned", folder=str(folder))
