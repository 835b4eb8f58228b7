"""What is left when it is over: the store beside what its agents were told, the journal, and a replay."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from bench.chaos.victim import Victim
from seedbed_server.store.verify import verify
from tests.e2e.account import account
from tests.e2e.commands import seedbed
from tests.e2e.load import Load

__all__ = ["Reckoning", "reckon"]

WAITABLE = ("429", "503")
UPDATES = 2
"""That must come after everything that happened."""
UPDATE_SECONDS = 300.0


@dataclass(frozen=True)
class Reckoning:
    """Counts of one phase; see `tests.e2e.account`."""

    acknowledged: int
    answers: dict[str, int]
    """How often each result was answered."""
    unexpected: list[str]
    """Errors that were answered and that are no 429 or 503: nothing that a client could wait for."""
    kept: int
    """Rewards in the store."""
    lost: int
    doubled: int
    strangers: int
    miscounted: int
    versions: int
    consecutive: bool
    """The journal is sound, and ends with the version that was served."""
    digest: str
    digest_equal: bool
    """Served, on record, and made again from base and journal."""


def reckon(victim: Victim, load: Load, console: Console) -> Reckoning:
    """Lets learning go on, ends load and server, and counts. Raises RuntimeError if it does not go on."""
    victim.until_ready()
    version = victim.status()["version"]
    victim.until(
        lambda: victim.seen().get("version", 0) >= version + UPDATES,
        UPDATE_SECONDS,
        f"learning does not go on from version {version}",
    )
    load.stop()
    status = victim.settled()
    code = victim.interrupt()
    if code:
        raise RuntimeError(f"the server ended with {code}; the end of its log:\n{victim.log_tail()}")
    console.print("the server has ended; counting, and replaying the journal ...")
    found, report = account(victim.place, load), verify(victim.place)
    options = ["--store-folder", victim.folder] if isinstance(victim.store, str) else []
    replayed = seedbed("replay", "--store", victim.store, "--model", victim.model, *options)
    if replayed.returncode not in (0, 1):
        raise RuntimeError(f"no replay: {replayed.stdout}{replayed.stderr}")
    reckoning = Reckoning(
        acknowledged=len(load.acknowledged),
        answers=dict(load.results),
        unexpected=[text for text in load.refused if not text.startswith(WAITABLE)],
        kept=found.rewards,
        lost=found.lost,
        doubled=found.doubled,
        strangers=found.strangers,
        miscounted=found.miscounted,
        versions=found.versions,
        consecutive=bool(report["sound"]) and found.versions == status["version"],
        digest=status["digest"],
        digest_equal=found.digest == status["digest"]
        and replayed.returncode == 0
        and status["digest"] in replayed.stdout,
    )
    console.print(str(reckoning))
    return reckoning
