"""A small model of the gateway: takes events and lets the learner decide each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from seedbed_server.learner import (
    Bounds,
    Given,
    Known,
    Member,
    Population,
    StaleRules,
    Target,
    Verdict,
    bounded,
    judge,
    make_step,
    open_population,
    reward_stale,
    staleness,
    zscore,
)
from seedbed_server.learner.population import reward_episode
from seedbed_server.learner.rewards import episode_reward

EPISODES = tuple(f"e{number}" for number in range(6))
COMPLETIONS = {f"{episode}-c{turn}": episode for episode in EPISODES for turn in range(2)}
SIZE = 3
START = open_population(
    number=1, version=1, sigma=0.1, size=SIZE, episodes_per_member=2, mirrored=False, run_seed=0
)
OLD = Member(1, 77, -1)
"""Leased `e5` in the population before this one."""


@dataclass(frozen=True)
class Post:
    """One reward on its way. Its name tells posts apart that say the same."""

    name: int
    episode_id: str
    completion_id: str | None
    reward: float
    reward_id: str | None


@dataclass(frozen=True)
class Recorded:
    """A completion is on record: rewards for it can be judged from now on."""

    completion_id: str


@dataclass(frozen=True)
class Closes:
    """The population closes."""


Event = Post | Recorded | Closes


@dataclass
class Desk:
    """What a gateway does with events, as plainly as possible."""

    population: Population
    closed: bool = False
    recorded: set[str] = field(default_factory=set)
    waiting: list[Post] = field(default_factory=list)
    by_id: dict[str, Known] = field(default_factory=dict)
    current: dict[tuple[str, str | None], Known] = field(default_factory=dict)
    answers: dict[int, str] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        if isinstance(event, Closes):
            self.closed = True
        elif isinstance(event, Recorded):
            self.recorded.add(event.completion_id)
            ready = [post for post in self.waiting if post.completion_id == event.completion_id]
            self.waiting = [post for post in self.waiting if post.completion_id != event.completion_id]
            for post in ready:
                self.post(post)
        elif event.completion_id in COMPLETIONS and event.completion_id not in self.recorded:
            self.waiting.append(event)  # it has overtaken its completion
        else:
            self.post(event)

    def post(self, post: Post) -> None:
        try:
            reward = bounded(post.reward, Bounds(-5, 5, clip=True))
        except ValueError:
            self.answers[post.name] = "refused"
            return
        target = None
        if post.episode_id in EPISODES and (post.completion_id is None or post.completion_id in COMPLETIONS):
            target = Target(post.episode_id, post.completion_id, 1, not self.closed)
        given = Given(post.episode_id, post.completion_id, reward, post.reward_id)
        key = (post.episode_id, post.completion_id)
        same = self.by_id.get(post.reward_id) if post.reward_id else None
        verdict: Verdict = judge(given, target, same, self.current.get(key))
        self.answers[post.name] = verdict.result
        if not verdict.store:
            return
        known = Known(post.episode_id, post.completion_id, reward)
        if post.reward_id:
            self.by_id[post.reward_id] = known
        if verdict.counts:
            self.current[key] = known
            self.count(post.episode_id)

    def count(self, episode: str) -> None:
        total = episode_reward({c: k.reward for (e, c), k in self.current.items() if e == episode})
        assert total is not None
        if episode == "e5":
            weight = staleness(0, 1, StaleRules(weight=0.5)).weight
            assert weight is not None
            self.population = reward_stale(
                self.population, origin=0, member=OLD, behind=1, weight=weight, episode_id=episode,
                group=None, reward=total,
            )  # fmt: skip
        else:
            member = EPISODES.index(episode) % SIZE
            self.population = reward_episode(self.population, member, episode, None, total)

    def final(self) -> tuple[object, ...]:
        """Everything that must not depend on the order."""
        return (
            self.population,
            make_step(self.population, zscore, 1e-3),
            self.current,
            self.by_id,
            self.answers,
            sorted(post.name for post in self.waiting),
        )


def run(events: Sequence[Event]) -> tuple[object, ...]:
    desk = Desk(START)
    for event in events:
        desk.take(event)
    return desk.final()
