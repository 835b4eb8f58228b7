"""What becomes of a posted reward: a job that judges it and keeps it, inside the store's transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from seedbed_server.learner import Given, Known, Target, Verdict, judge
from seedbed_server.learner.rewards import completion_reward, episode_reward
from seedbed_server.store import episodes, populations, rewards
from seedbed_server.store.rows import RewardRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    import sqlalchemy as sa

    from seedbed_server.store.rows import EpisodeRow

__all__ = ["Decided", "decide", "totals"]


@dataclass(frozen=True)
class Decided:
    """The answer to a reward, and what its episode has now."""

    verdict: Verdict
    episode: EpisodeRow | None
    version: int | None
    """The version that the episode's population explores around."""
    total: float | None


def decide(
    connection: sa.Connection, given: Given, feedback_text: str | None, now: float, within: str | None = None
) -> Decided:
    """Judges a reward and keeps what has to be kept of it. What lies outside `within` is unknown."""
    episode = _target_episode(connection, given)
    if episode is not None and within not in (None, episode.id):
        episode = None
    population = (
        populations.find(connection, episode.population)
        if episode is not None and episode.population is not None
        else None
    )
    target = same_id = current = None
    if episode is not None:
        is_open = population is not None and population.closed_at is None
        target = Target(episode.id, given.completion_id, episode.population, is_open, given.choice)
        if given.reward_id is not None:
            same_id = _known(rewards.by_id(connection, given.reward_id))
        current = _known(rewards.current(connection, episode.id, given.completion_id, given.choice))
    verdict = judge(given, target, same_id, current)
    version = None if population is None else population.version
    if episode is None or not verdict.store:
        return Decided(verdict, episode, version, None)
    if verdict.counts and current is not None:
        rewards.supersede(connection, episode.id, given.completion_id, given.choice)
    rewards.insert(
        connection,
        RewardRow(
            reward_id=given.reward_id,
            episode_id=episode.id,
            completion_id=given.completion_id,
            reward=given.reward,
            feedback_text=feedback_text,
            result=verdict.result,
            counts=verdict.counts,
            created_at=now,
            choice=given.choice,
        ),
    )
    total = totals(rewards.of_episode(connection, episode.id)).get(episode.id)
    return Decided(verdict, episode, version, total if verdict.counts else None)


def totals(rows: Iterable[RewardRow]) -> dict[str, float]:
    """The rewards of episodes, by their ids, from the rewards that count."""
    by_target: dict[str, dict[str | None, dict[int | None, float]]] = {}
    for row in rows:
        by_target.setdefault(row.episode_id, {}).setdefault(row.completion_id, {})[row.choice] = row.reward
    found: dict[str, float] = {}
    for episode_id, completions in by_target.items():
        total = episode_reward(
            {
                completion: value
                for completion, choices in completions.items()
                if (value := completion_reward(choices)) is not None
            }
        )
        if total is not None:
            found[episode_id] = total
    return found


def _target_episode(connection: sa.Connection, given: Given) -> EpisodeRow | None:
    episode_id = given.episode_id
    if given.completion_id is not None:
        owner = episodes.find_completion(connection, given.completion_id)
        if episode_id is not None and episode_id != owner:
            return None
        episode_id = owner
    if given.choice is not None:
        choices = episodes.find_choices(connection, given.completion_id or "")
        if choices is None or not 0 <= given.choice < choices:
            return None
    episode = None if episode_id is None else episodes.find(connection, episode_id)
    return None if episode is None or episode.status == "dropped" else episode


def _known(row: RewardRow | None) -> Known | None:
    return None if row is None else Known(row.episode_id, row.completion_id, row.reward, row.choice)
