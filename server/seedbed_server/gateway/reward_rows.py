"""What a job knows of the rewards that it judges: read once for all of them, and written together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from seedbed_server.store import episodes, populations, rewards

if TYPE_CHECKING:
    from collections.abc import Sequence

    import sqlalchemy as sa

    from seedbed_server.learner import Given
    from seedbed_server.store.rows import EpisodeRow, PopulationRow, RewardRow

__all__ = ["RewardRows"]


class RewardRows:
    """Guards rows that were read against what the job itself has changed. `flush` ends it."""

    def __init__(self, connection: sa.Connection, wanted: Sequence[Given]) -> None:
        self.connection = connection
        self.opened = populations.find_open(connection)
        self._populations = {} if self.opened is None else {self.opened.number: self.opened}
        completions = {given.completion_id for given in wanted if given.completion_id is not None}
        self._owners = episodes.find_owners(connection, completions)
        names = {given.episode_id for given in wanted if given.episode_id is not None}
        names |= {episode for episode, _ in self._owners.values()}
        self._episodes = episodes.find_many(connection, names)
        self._counting = rewards.of_episodes(connection, self._episodes)
        self._by_id = rewards.by_ids(
            connection, {given.reward_id for given in wanted if given.reward_id is not None}
        )
        self._added: list[RewardRow] = []

    def target(self, given: Given) -> EpisodeRow | None:
        """The episode that a reward is for; None if there is no such episode, completion or choice."""
        episode_id = given.episode_id
        if given.completion_id is not None:
            owner, choices = self._owners.get(given.completion_id, (None, 0))
            if owner is None or episode_id not in (None, owner):
                return None
            if given.choice is not None and not 0 <= given.choice < choices:
                return None
            episode_id = owner
        elif given.choice is not None:
            return None
        episode = None if episode_id is None else self._episodes.get(episode_id)
        return None if episode is None or episode.status == "dropped" else episode

    def origin(self, episode: EpisodeRow) -> PopulationRow | None:
        """The population that leased the episode's member; None for a control."""
        number = episode.population
        if number is None:
            return None
        if number not in self._populations:
            found = populations.find(self.connection, number)
            assert found is not None
            self._populations[number] = found
        return self._populations[number]

    def counting(self, episode_id: str) -> list[RewardRow]:
        """The rewards of an episode that count, oldest first."""
        return self._counting[episode_id]

    def by_id(self, reward_id: str | None) -> RewardRow | None:
        """The reward that was posted under a reward_id."""
        return None if reward_id is None else self._by_id.get(reward_id)

    def end(self, episode: EpisodeRow, at: float) -> EpisodeRow:
        """Closes an episode, if it is open."""
        if episode.status == "open" and episodes.end(self.connection, episode.id, "closed", at):
            episode = self._episodes[episode.id] = replace(episode, status="closed", ended_at=at)
        return episode

    def add(self, row: RewardRow, instead: RewardRow | None) -> None:
        """Adds a reward, which counts instead of another one if it counts."""
        if row.counts:
            if instead is not None:
                self.flush()
                rewards.supersede(self.connection, row.episode_id, row.completion_id, row.choice)
            kept = [item for item in self._counting[row.episode_id] if item is not instead]
            self._counting[row.episode_id] = [*kept, row]
        if row.reward_id is not None:
            self._by_id[row.reward_id] = row
        self._added.append(row)

    def place(self, episode_id: str, population: int | None, weight: float | None) -> None:
        """Says in which population the rewards of an episode count; None: in none yet."""
        self.flush()
        rewards.place(self.connection, episode_id, population, weight)
        self._counting[episode_id] = [
            replace(row, population=population, weight=weight) for row in self._counting[episode_id]
        ]

    def discount(self, episode_id: str) -> None:
        """Takes the count from all rewards of an episode."""
        self.flush()
        rewards.discount(self.connection, episode_id)
        self._counting[episode_id] = []

    def flush(self) -> None:
        """Writes what was added."""
        if self._added:
            rewards.insert(self.connection, *self._added)
            self._added = []
