"""Between the store's rows and the learner's values: jobs that run inside the store's transaction.

Each of them reads the facts, lets the learner decide, and writes what came of it, so that a decision always
rests on everything that was confirmed before it, and on nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seedbed.v1 import engine_pb2 as pb
from seedbed_server.gateway.verdicts import totals
from seedbed_server.learner import Member, Population, Step, make_step
from seedbed_server.learner import statistics as reward_statistics
from seedbed_server.learner.population import Tally, assign, episode_rewards, is_complete, reward_episode
from seedbed_server.store import episodes, journal, populations, rewards, runs
from seedbed_server.store.lineage import require_sound
from seedbed_server.store.rows import JournalRow, MemberRow, PopulationRow, RewardRow, RunRow

if TYPE_CHECKING:
    import sqlalchemy as sa

    from seedbed_server.gateway.plan import Plan
    from seedbed_server.store.rows import EpisodeRow

__all__ = ["Closed", "Standing", "close_population", "load_population", "population_of", "take_over"]


@dataclass(frozen=True)
class Standing:
    """Where a store stands: what was applied, what is journalled and not applied, and what explores now."""

    run: RunRow
    term: int
    applied: tuple[JournalRow, ...]
    pending: JournalRow | None
    population: Population


@dataclass(frozen=True)
class Closed:
    """What came of a complete population, and the one after it."""

    number: int
    outcome: str
    reward_mean: float
    reward_spread: float
    row: JournalRow | None
    following: Population


def take_over(
    connection: sa.Connection, loaded: RunRow, plan: Plan, store: str, *, first: bool, now: float
) -> Standing:
    """Checks that the store belongs to the loaded model, and says where it stands.

    `first`: a gateway starts (its term is new, completions of one before it are lost); otherwise only its
    engine does. Raises StoreMismatch, or StoreError for a journal that is damaged.
    """
    run = runs.find(connection)
    if run is None:
        run = loaded
        runs.insert(connection, run)
    runs.check_identity(run, loaded, store)
    term = run.term
    if first:
        term = runs.take_over(connection, loaded.settings)
        episodes.lose_running(connection, now)
    rows = journal.whole(connection)
    require_sound(rows, run.start_digest)
    pending = rows.pop() if rows and rows[-1].digest is None else None
    version = len(rows) + (pending is not None)
    population = load_population(connection)
    if population is None:
        closed = populations.last_closed(connection)
        population = plan.population(0 if closed is None else closed.number + 1, version)
        save_population(connection, population, now)
    return Standing(run, term, tuple(rows), pending, population)


def close_population(
    connection: sa.Connection, plan: Plan, *, rank: int, noise_version: int, start_digest: bytes, now: float
) -> Closed | None:
    """Closes the open population if it is complete: journals its step, if it makes one, and opens the next.

    None if it is not complete. The record is written before anybody applies it.
    """
    population = load_population(connection)
    if population is None or not is_complete(population):
        return None
    scores = reward_statistics(episode_rewards(population))
    assert scores is not None
    step = make_step(population, plan.estimator, plan.alpha(population.version), rank)
    outcome = "step" if isinstance(step, Step) else step.reason
    populations.close(
        connection,
        population.number,
        at=now,
        outcome=outcome,
        reward_mean=scores.mean,
        reward_spread=scores.spread,
    )
    row = None
    version = population.version
    if isinstance(step, Step):
        before = journal.last(connection)
        version += 1
        record = _record(step, version, rank, noise_version, plan.rounding)
        digest = start_digest if before is None else before.digest
        assert digest is not None, "a population explores only what was applied"
        record.from_digest = digest
        data = record.SerializeToString(deterministic=True)
        row = JournalRow(
            version=version,
            population=population.number,
            record=data,
            chain=journal.link(journal.GENESIS if before is None else before.chain, data),
            created_at=now,
            reward_mean=scores.mean,
            reward_spread=scores.spread,
            reward_min=scores.minimum,
            reward_max=scores.maximum,
            best_member=scores.best_member,
            members=step.members,
            episodes=scores.episodes,
            sigma=step.sigma,
            alpha=step.alpha,
            scale=step.scale,
        )
        journal.append(connection, row)
    following = plan.population(population.number + 1, version)
    save_population(connection, following, now)
    return Closed(population.number, outcome, scores.mean, scores.spread, row, following)


def load_population(connection: sa.Connection) -> Population | None:
    """The open population with everything that its members have."""
    row = populations.find_open(connection)
    if row is None:
        return None
    members = populations.members_of(connection, row.number)
    return population_of(
        row,
        members,
        episodes.of_population(connection, row.number),
        rewards.of_population(connection, row.number),
    )


def population_of(
    row: PopulationRow, members: list[MemberRow], episode_rows: list[EpisodeRow], reward_rows: list[RewardRow]
) -> Population:
    """A population from its rows."""
    population = Population(
        number=row.number,
        version=row.version,
        sigma=row.sigma,
        episodes_per_member=row.episodes_per_member,
        members=tuple(Member(member.index, member.seed, member.sign) for member in members),
        tallies=(Tally(),) * len(members),
    )
    rewarded = totals(reward_rows)
    for episode in episode_rows:
        assert episode.member is not None
        total = rewarded.get(episode.id)
        if total is None and episode.status != "open":
            # It ended without a reward: its member is free for another.
            continue
        population = assign(population, episode.member, episode.group)
        if total is not None:
            population = reward_episode(population, episode.member, episode.id, episode.group, total)
    return population


def save_population(connection: sa.Connection, population: Population, now: float) -> None:
    """Writes a population that has no episodes yet."""
    populations.insert(
        connection,
        PopulationRow(
            population.number, population.version, population.sigma, population.episodes_per_member, now
        ),
        [MemberRow(population.number, m.index, m.seed, m.sign) for m in population.members],
    )


def _record(
    step: Step, version: int, rank: int, noise_version: int, rounding: pb.Rounding
) -> pb.UpdateRecord:
    fields: dict[str, Any] = {
        "version": version,
        "noise_version": noise_version,
        "rank": rank,
        "seeds": step.seeds,
        "coefficients": bytes(value & 0xFF for value in step.coefficients),
        "matrix_multiplier": step.matrix_multiplier,
        "vector_multiplier": step.vector_multiplier,
        "rounding": rounding,
        "sigma": step.sigma,
        "alpha": step.alpha,
    }
    return pb.UpdateRecord(**fields)
