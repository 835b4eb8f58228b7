"""What a store says after all kills, beside what its agents were told."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from seedbed_server.store import Place, Store, episodes, journal, tables
from seedbed_server.store.lineage import record_of
from tests.e2e.load import Load

__all__ = ["Account", "account"]


@dataclass(frozen=True)
class Account:
    """Counts that must be 0, but for `rewards` and `versions`; and the digest that the journal ends with."""

    rewards: int
    versions: int
    lost: int
    doubled: int
    strangers: int
    """Rewards that nobody posted, or with another value."""
    miscounted: int
    """Updates whose populations have another number of rewarded episodes than was counted for them."""
    digest: str


def account(place: Place, load: Load) -> Account:
    """Reads a store that nobody serves. Raises StoreError for a journal with a gap or a broken chain."""
    with Store(place) as store:
        return store.read_now(lambda connection: _count(connection, load))


def _count(connection: sa.Connection, load: Load) -> Account:
    kept = connection.execute(sa.select(tables.rewards)).all()
    by_id: dict[str | None, list[sa.Row[tuple[object, ...]]]] = {}
    for row in kept:
        by_id.setdefault(row.reward_id, []).append(row)
    lost = sum(name not in by_id for name in load.acknowledged)
    counting: dict[str, int] = {}
    for row in kept:
        counting[row.episode_id] = counting.get(row.episode_id, 0) + row.counts
    strangers = 0
    for name, rows in by_id.items():
        posted = load.posted.get(str(name))
        strangers += posted is None or any(
            (row.episode_id, row.reward) != (posted.episode_id, posted.reward) for row in rows
        )
    doubled = sum(len(rows) - 1 for rows in by_id.values()) + sum(max(0, n - 1) for n in counting.values())
    rows = journal.verified(connection)
    miscounted = 0
    for row in rows:
        record_of(row)
        if row.kind == journal.UPDATE:
            assert row.population is not None
            rewarded = episodes.rewarded_in(connection, row.population)
            own = [episode for episode in rewarded if episode.population == row.population]
            miscounted += len(own) != row.episodes
    digest = rows[-1].digest if rows else None
    return Account(
        len(kept), len(rows), lost, doubled, strangers, miscounted, "" if digest is None else digest.hex()
    )
