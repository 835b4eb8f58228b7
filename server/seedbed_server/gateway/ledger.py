"""Between the store's rows and the learner's values: jobs that run inside the store's transaction.

Each of them reads the facts, lets the learner decide, and writes what came of it, so that a decision always
rests on everything that was confirmed before it, and on nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seedbed.v1 import engine_pb2 as pb
from seedbed_server.gateway import guards, reports
from seedbed_server.gateway.populations import load_population, save_population
from seedbed_server.learner import (
    NoStep,
    Population,
    Step,
    close_reason,
    history,
    limit_step,
    make_step,
    needed,
)
from seedbed_server.learner import statistics as reward_statistics
from seedbed_server.learner.population import all_rewards, episode_rewards, rewarded_members
from seedbed_server.store import episodes, journal, learning, populations, runs
from seedbed_server.store.lineage import require_sound, updates_in_lineage
from seedbed_server.store.rows import JournalRow, PopulationRow, RunRow

if TYPE_CHECKING:
    import sqlalchemy as sa

    from seedbed_server.gateway.guards import Pause
    from seedbed_server.gateway.plan import Plan

__all__ = ["Closed", "Standing", "close_population", "take_over"]

FORCED_QUORUM = 2


@dataclass(frozen=True)
class Standing:
    """Where a store stands: what was applied, what is journalled and not applied, and what explores now."""

    run: RunRow
    term: int
    applied: tuple[JournalRow, ...]
    pending: JournalRow | None
    population: Population
    last_closed: PopulationRow | None
    pause: Pause | None


@dataclass(frozen=True)
class Closed:
    """What came of a population, and the one after it."""

    population: PopulationRow
    """With outcome and report."""
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
    closed = populations.last_closed(connection)
    population = load_population(connection, plan.rewards)
    if population is None:
        updates = updates_in_lineage(connection, version)
        population = plan.population(0 if closed is None else closed.number + 1, version, updates, now)
        save_population(connection, population)
    return Standing(run, term, tuple(rows), pending, population, closed, guards.pause_of(connection))


def close_population(
    connection: sa.Connection,
    plan: Plan,
    *,
    rank: int,
    noise_version: int,
    start_digest: bytes,
    now: float,
    force: bool = False,
) -> Closed | None:
    """Closes the open population if it is time to: journals its step, if it makes one, and opens the next.

    None if it is not, or while learning is paused. `force`: with whatever two members or more have. The
    record is written before anybody applies it.
    """
    population = load_population(connection, plan.rewards)
    if population is None or guards.pause_of(connection) is not None:
        return None
    closing = close_reason(population, now, plan.closing)
    if closing is None and not (force and rewarded_members(population) >= FORCED_QUORUM):
        return None
    quorum = {"complete": 0, None: FORCED_QUORUM}.get(closing, needed(population, plan.closing))
    known = _history(connection, plan)
    updates = updates_in_lineage(connection, population.version)
    step, limited = _step(plan, population, known, rank, quorum, plan.alpha(updates, now))
    facts = reports.Facts(population, closing or "forced", now, known)
    controls = reports.controls(connection, plan, population.number)
    report = reports.report(connection, plan, facts, step, controls, limited=limited)
    scores = reward_statistics(episode_rewards(population))
    populations.close(
        connection,
        population.number,
        at=now,
        outcome="step" if isinstance(step, Step) else step.reason,
        reward_mean=None if scores is None else scores.mean,
        reward_spread=None if scores is None else scores.spread,
        closing=facts.closing,
        report=report,
    )
    row = None
    version = population.version
    if isinstance(step, Step):
        assert scores is not None, "a step needs two members of its own"
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
    _remember(connection, plan, population, known, controls)
    following = plan.population(population.number + 1, version, updates + (row is not None), now)
    save_population(connection, following)
    closed = populations.find(connection, population.number)
    assert closed is not None
    return Closed(closed, row, following)


def _step(
    plan: Plan, population: Population, known: history.History, rank: int, quorum: int, alpha: float
) -> tuple[Step | NoStep, bool]:
    """The step, and whether it had to be made shorter."""
    try:
        step = make_step(population, plan.estimator(known), alpha, rank, quorum, plan.decay(alpha))
        if plan.step_bound is None or isinstance(step, NoStep):
            return step, False
        shorter = limit_step(step, plan.step_bound)
    except ValueError:
        # It would leave float32: no multiplier says it.
        return NoStep("out_of_range"), False
    return shorter, shorter is not step


def _history(connection: sa.Connection, plan: Plan) -> history.History:
    text = learning.get(connection, learning.HISTORY) if plan.uses_history else None
    return history.History() if text is None else history.from_json(text)


def _remember(
    connection: sa.Connection,
    plan: Plan,
    population: Population,
    known: history.History,
    controls: list[tuple[str | None, float]],
) -> None:
    """Teaches the history what this population and the controls beside it have earned."""
    if not plan.uses_history:
        return
    earned = [(item.group, item.reward) for item in all_rewards(population)]
    after = history.observe(
        known,
        [*earned, *controls],
        population=population.number,
        memory=plan.history_memory,
        keep=plan.history_groups,
    )
    learning.put(connection, learning.HISTORY, history.to_json(after))


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
        "decay": step.decay,
    }
    return pb.UpdateRecord(**fields)
