"""From version to version: each population is asked its questions, each member the same ones.

The questions of a population depend on the recipe's seed and the population's number alone, so an
interrupted run that goes on asks what it would have asked.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from seedbed_agents.brevity.questions import TRAINING, Question

if TYPE_CHECKING:
    from collections.abc import Callable

    from openai import AsyncOpenAI

    from seedbed_agents.brevity.agent import Agent, Answer
    from seedbed_agents.brevity.options import Recipe

__all__ = [
    "NoProgress",
    "Status",
    "explore_population",
    "population_questions",
    "read_status",
    "read_updates",
]

# How long the server may take to make a version of a population whose rewards it has.
UPDATE_SECONDS = 300.0
POLL_SECONDS = 0.1


class NoProgress(RuntimeError):
    """The server has all rewards and makes no new population; the message says what it waits for."""


@dataclass(frozen=True, slots=True)
class Status:
    """What the agent needs of `GET /v1/status`."""

    version: int
    digest: str
    population: int
    size: int
    sigma: float
    waiting_for: str
    # Raw rewards of the last update; None before the first one.
    reward_mean: float | None
    reward_spread: float | None


async def read_status(client: AsyncOpenAI) -> Status:
    """Ask the server where it stands; waits, bounded, while its engine comes back. Raises NoProgress."""
    deadline = time.monotonic() + UPDATE_SECONDS
    while True:
        values = await client.get("/status", cast_to=dict[str, Any])
        if values["population"] is not None:
            return _status(values)
        if time.monotonic() > deadline:
            raise NoProgress(f"no population is open; the engine is {values['engine']}: {values['warnings']}")
        await asyncio.sleep(POLL_SECONDS)


def _status(values: dict[str, Any]) -> Status:
    population: dict[str, Any] = values["population"]
    last: dict[str, Any] = values["last_update"] or {}
    return Status(
        version=values["version"],
        digest=values["digest"],
        population=population["id"],
        size=population["size"],
        sigma=values["sigma"],
        waiting_for=population["waiting_for"],
        reward_mean=last.get("reward_mean"),
        reward_spread=last.get("reward_spread"),
    )


async def read_updates(client: AsyncOpenAI) -> tuple[tuple[dict[str, Any], ...], int]:
    """All updates as `GET /v1/updates` lists them, and the bytes of their serialised records together."""
    values = await client.get("/updates", cast_to=dict[str, Any])
    updates: list[dict[str, Any]] = values["data"]
    return tuple(updates), sum(update["record_bytes"] for update in updates)


def population_questions(recipe: Recipe, population: int) -> tuple[Question, ...]:
    """The questions of one population: the training questions in ever new orders, a few at a time."""
    first = population * recipe.questions_per_population
    return tuple(
        _shuffled(recipe.seed, place // len(TRAINING))[place % len(TRAINING)]
        for place in range(first, first + recipe.questions_per_population)
    )


@lru_cache(maxsize=8)
def _shuffled(seed: int, deck: int) -> tuple[Question, ...]:
    return tuple(random.Random(f"{seed}/{deck}").sample(TRAINING, len(TRAINING)))


async def explore_population(
    agent: Agent, recipe: Recipe, status: Status, seen: Callable[[Answer], None] | None = None
) -> Status:
    """Ask every member of the open population its questions, and wait for the population after it.

    Returns the new status: of the next version, or of the same one where the rewards said nothing. `seen`
    hears each answer that was rewarded. Raises NoProgress when no other population is open in time.
    """
    questions = population_questions(recipe, status.population)
    asked = [question for question in questions for _ in range(status.size)]
    await agent.explore(asked, status.population, seen)
    deadline = time.monotonic() + UPDATE_SECONDS
    while (after := await read_status(agent.client)).population == status.population:
        if time.monotonic() > deadline:
            raise NoProgress(
                f"population {status.population}: no update within {UPDATE_SECONDS:g} s; "
                f"the server waits for {after.waiting_for}"
            )
        await asyncio.sleep(POLL_SECONDS)
    return after
