"""What is kept of a population when it closes, for operators: who was left out, and is it signal?"""

from __future__ import annotations

import math
from dataclasses import asdict, astuple, dataclass
from typing import TYPE_CHECKING, Any

from seedbed_server.gateway.totals import totals
from seedbed_server.learner import Step, Traffic, benefit, expected_rms, watch
from seedbed_server.learner import statistics as reward_statistics
from seedbed_server.learner.benefit import scatter_of_controls, scatter_within
from seedbed_server.learner.estimators import mean
from seedbed_server.learner.groups import group_means, residuals
from seedbed_server.learner.population import all_rewards, episode_rewards, rewarded_members
from seedbed_server.learner.watch import dropped_shares, rewards_by_duration
from seedbed_server.store import episodes, rewards

if TYPE_CHECKING:
    import sqlalchemy as sa

    from seedbed_server.gateway.plan import Plan
    from seedbed_server.learner import Benefit, History, NoStep, Population
    from seedbed_server.learner.estimators import EpisodeReward

__all__ = ["Facts", "controls", "report"]


@dataclass(frozen=True)
class Facts:
    """A population as it closes."""

    population: Population
    closing: str
    at: float
    history: History
    """Before it."""


def controls(connection: sa.Connection, plan: Plan, number: int) -> list[tuple[str | None, float]]:
    """(group, reward) of the controls beside a population, oldest first."""
    rows = rewards.of_population(connection, number)
    rewarded = totals(connection, rows, plan.rewards.aggregation)
    return [
        (episode.group, rewarded[episode.id])
        for episode in episodes.rewarded_in(connection, number)
        if episode.population is None
    ]


def report(
    connection: sa.Connection,
    plan: Plan,
    facts: Facts,
    step: Step | NoStep,
    beside: list[tuple[str | None, float]],
    *,
    limited: bool,
) -> dict[str, Any]:
    """The report of a population, as JSON. What could not be known is null."""
    population = facts.population
    own = {episode for tally in population.tallies for episode in tally.rewards}
    leased = [
        (episode.id, episode.member, episode.created_at)
        for episode in episodes.of_population(connection, population.number)
        if episode.member is not None
    ]
    completions, truncated, ended = episodes.traffic(connection, population.number)
    dropped = sum(episode not in own for episode, _, _ in leased)
    traffic = Traffic(len(leased), dropped, completions, truncated)
    scores = reward_statistics(episode_rewards(population))
    values = {episode: item.reward for tally in population.tallies for episode, item in tally.rewards.items()}
    durations = rewards_by_duration(
        (ended[episode] - created, values[episode])
        for episode, _, created in leased
        if episode in values and episode in ended
    )
    worth = _benefit(plan, facts, beside)
    return {
        "seconds": facts.at - (population.opened_at or facts.at),
        "members_rewarded": rewarded_members(population),
        "stale_episodes": sum(len(item.rewards) for item in population.stale),
        "controls": len(beside),
        "control_mean": mean([reward for _, reward in beside]) if beside else None,
        "episodes": traffic.episodes,
        "dropped": traffic.dropped,
        "completions": traffic.completions,
        "truncated": traffic.truncated,
        "dropped_by_member": [
            {"member": member, "share": share}
            for member, share in dropped_shares((member, episode not in own) for episode, member, _ in leased)
            if share
        ],
        "reward_by_duration": [asdict(part) for part in durations],
        "expected_rms": expected_rms(step) if isinstance(step, Step) else None,
        "limited": limited,
        "benefit": None if worth is None else asdict(worth),
        "findings": [asdict(finding) for finding in watch(scores, traffic, plan.limits)],
    }


def _benefit(plan: Plan, facts: Facts, beside: list[tuple[str | None, float]]) -> Benefit | None:
    """What the direction is worth; luck is judged by members with several episodes, or by controls."""
    rewarded = all_rewards(facts.population)
    compared: list[EpisodeReward] = list(rewarded)
    estimate = plan.estimator(facts.history)(rewarded)
    control_values = [reward for _, reward in beside]
    if plan.estimator_name == "group-relative":
        means = group_means(rewarded)
        compared = residuals(rewarded, means.__getitem__)
        # A control of a group that no member saw cannot be compared.
        control_values = [reward - means[group] for group, reward in beside if group in means]
    elif plan.estimator_name == "group-baseline":
        compared = residuals(rewarded, plan.baseline(facts.history))
        control_values = [reward - plan.baseline(facts.history)(group) for group, reward in beside]
    try:
        scatter = scatter_within(compared) or scatter_of_controls(control_values)
        found = benefit(compared, estimate, scatter)
    except (ValueError, OverflowError):
        # Differences that are no floats.
        return None
    return found if found is not None and all(map(math.isfinite, astuple(found))) else None
