"""Where a demo keeps its store and its notes, and how an interrupted one goes on.

Every demo has a directory: `store.sqlite` (the server's) and its engine's log beside it, `server.log`,
`replay.log`, and `demo.json`, the notes: its recipe, the answers of the model before anything was learned,
and whether it is finished. A demo of the same recipe that is not finished goes on; otherwise a new
directory is made. A lock tells two demos at once apart.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbed_agents.brevity.evaluate import Evaluation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from seedbed_agents.brevity.options import Recipe

__all__ = ["DirectoryError", "Notes", "RunDirectory", "demo_home", "open_run"]


class DirectoryError(RuntimeError):
    """A directory that cannot be used; the message names it and the remedy."""


@dataclass(frozen=True, slots=True)
class Notes:
    """What a demo remembers beside its store."""

    recipe: dict[str, Any]
    # The live model at version 0.
    before: Evaluation | None = None
    # Smaller looks at it on the way: version, questions, score and words.
    looks: tuple[dict[str, Any], ...] = ()
    # Spent so far, by all runs of this demo.
    seconds: float = 0.0
    finished: bool = False


@dataclass(slots=True)
class RunDirectory:
    """One demo's directory, locked by this process."""

    path: Path
    notes: Notes
    # Whether it was begun by an earlier run.
    resumed: bool
    _file: Path = field(init=False)

    def __post_init__(self) -> None:
        self._file = self.path / "demo.json"

    @property
    def store(self) -> Path:
        """The server's store."""
        return self.path / "store.sqlite"

    def note(self, **changes: Any) -> None:
        """Change the notes, on the disk too: all of it or nothing."""
        self.notes = replace(self.notes, **changes)
        values = asdict(self.notes)
        values["before"] = self.notes.before.to_json() if self.notes.before else None
        partial = self._file.with_suffix(".partial")
        with partial.open("w") as stream:
            json.dump(values, stream, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(self._file)


def demo_home() -> Path:
    """`<SEEDBED_HOME>/demo`, where SEEDBED_HOME is `~/.local/share/seedbed` unless it is set."""
    return Path(os.environ.get("SEEDBED_HOME") or "~/.local/share/seedbed").expanduser() / "demo"


@contextmanager
def open_run(recipe: Recipe, chosen: Path | None = None) -> Iterator[RunDirectory]:
    """The directory for a demo of this recipe, for as long as the context lasts.

    `chosen` is made, or goes on if it holds an unfinished demo of the same recipe; anything else in it is
    refused. Without it: the newest unfinished one below `demo_home()`, or a new one. Raises DirectoryError.
    """
    wanted = asdict(recipe)
    try:
        if chosen is not None:
            path = chosen.expanduser().resolve()
            lock = _lock(path)
            if lock is None:
                raise DirectoryError(
                    f"{path}: another demo runs here; wait for it, or choose another --store"
                )
            run = _enter(path, wanted)
        else:
            run, lock = _choose(demo_home(), wanted)
    except OSError as error:
        remedy = "choose another directory with --store, or another home with SEEDBED_HOME"
        raise DirectoryError(f"{error.filename}: cannot be used ({error.strerror}); {remedy}") from error
    try:
        yield run
    finally:
        os.close(lock)


def _choose(home: Path, wanted: dict[str, Any]) -> tuple[RunDirectory, int]:
    home.mkdir(parents=True, exist_ok=True)
    numbers = sorted(int(path.name) for path in home.iterdir() if path.name.isdecimal())
    for number in reversed(numbers):
        path = home / str(number)
        try:
            notes = _read(path / "demo.json")
        except DirectoryError:
            continue  # damaged: left as it is, for people to look at
        if notes and notes.recipe == wanted and not notes.finished and (lock := _lock(path)) is not None:
            return RunDirectory(path, notes, resumed=True), lock
    number = numbers[-1] + 1 if numbers else 1
    while (lock := _lock(home / str(number))) is None:
        number += 1
    return _enter(home / str(number), wanted), lock


def _enter(path: Path, wanted: dict[str, Any]) -> RunDirectory:
    """Begin or go on with the demo in a locked directory."""
    notes = _read(path / "demo.json")
    if notes is None:
        if strangers := sorted(item.name for item in path.iterdir() if item.name != "demo.lock"):
            raise DirectoryError(
                f"{path}: holds {strangers[0]} and no demo; choose an empty or new directory"
            )
        run = RunDirectory(path, Notes(recipe=wanted), resumed=False)
        run.note()
        return run
    if notes.finished:
        raise DirectoryError(f"{path}: the demo in it is finished; choose a new directory with --store")
    for name, value in wanted.items():
        if notes.recipe.get(name) != value:
            begun = notes.recipe.get(name)
            raise DirectoryError(
                f"{path}: the demo in it has {name} = {begun!r}, and {value!r} was asked for; "
                "go on with the same options, or choose a new directory with --store"
            )
    return RunDirectory(path, notes, resumed=True)


def _lock(path: Path) -> int | None:
    """A descriptor that holds the directory until it is closed; None if another process does."""
    path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path / "demo.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _read(file: Path) -> Notes | None:
    try:
        values = json.loads(file.read_text())
        before = Evaluation.from_json(values["before"]) if values["before"] else None
        return Notes(values["recipe"], before, tuple(values["looks"]), values["seconds"], values["finished"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise DirectoryError(f"{file}: is damaged ({error!r}); move {file.parent} away") from None
