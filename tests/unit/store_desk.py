"""The gateway's jobs on a real store, one event after the other: what `reward_desk` does without one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from seedbed_server.config import load_settings
from seedbed_server.gateway import ledger, verdicts
from seedbed_server.gateway.plan import Plan, plan_from
from seedbed_server.gateway.populations import apply, load_population, save_population
from seedbed_server.gateway.verdicts import Posted
from seedbed_server.learner import Bounds, Given, Population, bounded
from seedbed_server.store import Place, Store, episodes, populations, tables
from seedbed_server.store.rows import CompletionRow, EpisodeRow, RunRow

NAMES = tuple(f"e{number}" for number in range(6))
COMPLETIONS = {f"{name}-c{turn}": name for name in NAMES for turn in range(2)}
RUN = RunRow(1.0, "toy", b"\x01" * 32, b"\x05" * 32, "float32", "full", 1, 1, {}, 0)
NOW = 100.0


def plan(**settings: Any) -> Plan:
    values = {
        "population_size": 3,
        "episodes_per_member": 2,
        "stale_weight": 0.5,
        "sigma_schedule": "constant",
    }
    return plan_from(load_settings(**{**values, **settings}))


@dataclass(frozen=True)
class Post:
    """One reward on its way. Its name tells posts apart that say the same."""

    name: int
    episode_id: str
    completion_id: str | None
    reward: float
    reward_id: str | None
    final: bool | None = None


@dataclass(frozen=True)
class Closes:
    """The population closes with what is there."""


Event = Post | Closes


class StoreDesk:
    """`e0` to `e4` belong to members of the open population 1, `e5` to one of the closed population 0."""

    def __init__(self, place: Place | Path, plan: Plan) -> None:
        self.place, self.plan = place, plan
        self.store = Store(place)
        self.answers: dict[int, str] = {}
        self.memory: Population | None = None

    def begin(self) -> None:
        """Everything from the start."""
        self.answers = {}
        self.store.submit(self._clear).result(30)
        self.memory = self.store.submit(self._fill).result(30)

    def reopen(self) -> None:
        """The process dies and another one opens the store."""
        self.store.close()
        self.store = Store(self.place)
        self.memory = self.store.read_now(lambda connection: load_population(connection, self.plan.rewards))

    def take(self, events: Sequence[Event], together: int = 1) -> None:
        """Up to `together` rewards in a row are a job of their own, and so is each closing."""
        jobs: list[list[Event]] = []
        for event in events:
            last = jobs[-1] if jobs else []
            if last and isinstance(event, Post) and isinstance(last[0], Post) and len(last) < together:
                last.append(event)
            else:
                jobs.append([event])
        for job, future in [(job, self.store.submit(lambda c, job=job: self._job(c, job))) for job in jobs]:
            self._hear(job, future.result(30))

    def final(self) -> tuple[object, ...]:
        """Everything that must not depend on the order."""
        stored = self.store.read_now(self._stored)
        assert stored[0] == self.memory, "the population in memory is the one of the rows"
        return (*stored, self.answers)

    def close(self) -> None:
        self.store.close()

    def _job(self, connection: sa.Connection, events: Sequence[Event]) -> Any:
        if isinstance(events[0], Closes):
            run = {"rank": 1, "noise_version": 1, "start_digest": RUN.start_digest}
            return ledger.close_population(connection, self.plan, **run, now=NOW, force=True)
        posted = []
        for event in events:
            assert isinstance(event, Post)
            with contextlib.suppress(ValueError):
                reward = bounded(event.reward, Bounds(-5, 5, clip=True))
                given = Given(event.episode_id, event.completion_id, reward, event.reward_id)
                posted.append((event.name, Posted(given, None, event.final)))
        decided = verdicts.decide(connection, [one for _, one in posted], self.plan.rewards, NOW)
        return {name: one for (name, _), one in zip(posted, decided, strict=True)}

    def _hear(self, events: Sequence[Event], came: Any) -> None:
        for event in events:
            if isinstance(event, Closes):
                if came is not None:
                    self.memory = came.following
                continue
            decided = came.get(event.name)
            self.answers[event.name] = "refused" if decided is None else decided.verdict.result
            counted = None if decided is None else decided.counted
            assert self.memory is not None
            if counted is not None and counted.population == self.memory.number:
                self.memory = apply(self.memory, counted)

    def _stored(self, connection: sa.Connection) -> tuple[object, ...]:
        reward = tables.rewards.c
        counting = connection.execute(
            sa.select(
                reward.episode_id, reward.completion_id, reward.reward, reward.reward_id, reward.population,
                reward.weight,
            ).where(reward.counts)
        )  # fmt: skip
        journal = (
            connection.execute(sa.select(tables.journal.c.record).order_by(tables.journal.c.version))
            .scalars()
            .all()
        )
        done = connection.execute(
            sa.select(
                tables.populations.c.number, tables.populations.c.outcome, tables.populations.c.report
            ).order_by(tables.populations.c.number)
        )
        kept = connection.execute(sa.select(sa.func.count()).select_from(tables.rewards)).scalar_one()
        status = connection.execute(sa.select(tables.episodes.c.id, tables.episodes.c.status))
        return (
            load_population(connection, self.plan.rewards),
            sorted(map(str, counting)),
            journal,
            [tuple(row) for row in done],
            kept,
            sorted(map(tuple, status)),
        )

    def _clear(self, connection: sa.Connection) -> None:
        for table in reversed(tables.metadata.sorted_tables):
            connection.execute(sa.delete(table))

    def _fill(self, connection: sa.Connection) -> Population:
        old = ledger.take_over(connection, RUN, self.plan, "store", first=True, now=1.0).population
        leased = [(old, "e5", 1)]
        populations.close(connection, 0, at=2.0, outcome="no_spread", reward_mean=None, reward_spread=None)
        current = replace(self.plan.population(1, 0, 0, 3.0), version=1)
        save_population(connection, current)
        leased += [(current, name, index % 3) for index, name in enumerate(NAMES[:5])]
        for population, name, index in leased:
            member = population.members[index]
            sigma = member.sign * population.sigma
            episodes.insert(
                connection,
                EpisodeRow(name, population.number, index, member.seed, sigma, f"g{index}", "open", 4.0),
            )
        for turn, (completion, name) in enumerate(COMPLETIONS.items()):
            episodes.insert_completion(
                connection, CompletionRow(completion, name, "chat", 0, "running", 5.0 + turn)
            )
        found = load_population(connection, self.plan.rewards)
        assert found is not None
        return found
