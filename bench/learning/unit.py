"""One unit: a server with a store of its own, from the base to the last update, and what its model scores."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from bench.learning.arms import ARMS, posted
from bench.learning.tasks import Item, Task
from seedbed_agents.brevity.agent import together
from seedbed_agents.brevity.server import served

__all__ = ["Outcome", "Unit", "make"]

MEMBERS = 16
WAIT_SECONDS = 600.0
FRUITLESS = 5


@dataclass(frozen=True)
class Unit:
    """What is to be done. Arm `base`: nothing is learned, only measured."""

    task: Task
    seed: int
    arm: str

    @property
    def name(self) -> str:
        return f"{self.task.name}-{self.arm}" + (f"-{self.seed}" if self.arm != "base" else "")


@dataclass(frozen=True)
class Outcome:
    """What came of it: the score of each held-out prompt, and the raw reward mean of each update."""

    scores: list[float]
    reward_means: list[float]
    version: int
    digest: str
    seconds: float


def make(unit: Unit, model: str, work: Path, told: Callable[[str, int], None]) -> Outcome:
    """Does a unit, or takes what was done before. `told` hears where it stands, and the updates made.

    Raises RuntimeError when the server does not go on, and what the server and the client raise.
    """
    file = work / f"{unit.name}.json"
    if file.exists():
        return Outcome(**json.loads(file.read_text()))
    folder = work / unit.name
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    task = unit.task
    settings: dict[str, Any] = {
        "model": model,
        "store": folder / "store.sqlite",
        "population-size": MEMBERS,
        "episodes-per-member": task.each,
        "sigma": task.sigma,
        "sigma-floor": task.sigma_floor,
        "alpha": task.alpha,
        "total-updates": task.updates,
        "run-seed": unit.seed,
        "snapshot-every": 0,
        **(ARMS[unit.arm].settings if unit.arm != "base" else {}),
    }
    with served(
        settings, folder / "server.log", 0, lambda spent: told(f"loading, {spent:.0f} s", 0)
    ) as server:
        outcome = asyncio.run(_learn(unit, server.base_url, begun, told))
    draft = file.with_suffix(".partial")
    draft.write_text(json.dumps(asdict(outcome)))
    draft.replace(file)
    return outcome


async def _learn(unit: Unit, base_url: str, begun: float, told: Callable[[str, int], None]) -> Outcome:
    async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=8, timeout=300) as client:
        names = [model.id async for model in await client.models.list()]
        model = next(name for name in names if not name.endswith(":live"))
        updates = unit.task.updates if unit.arm != "base" else 0
        status, fruitless = await _status(client), 0
        while status["version"] < updates:
            told(f"population {status['population']['id']}", status["version"])
            after = await _population(client, unit, model, status["population"]["id"])
            fruitless = 0 if after["version"] > status["version"] else fruitless + 1
            if fruitless == FRUITLESS:
                raise RuntimeError(f"{unit.name}: {FRUITLESS} populations in a row led to no update")
            status = after
        told("held-out prompts", status["version"])
        scores = await _measure(client, f"{model}:live", unit.task)
        listed: dict[str, Any] = await client.get("/updates", cast_to=dict[str, Any])
        means = [update["reward_mean"] for update in listed["data"]]
        seconds = time.monotonic() - begun
        return Outcome(scores, means, status["version"], status["digest"], seconds)


async def _measure(client: AsyncOpenAI, model: str, task: Task) -> list[float]:
    """The score of each held-out prompt; nothing is rewarded."""
    free = asyncio.Semaphore(MEMBERS)

    async def one(item: Item) -> float:
        async with free:
            text, _, _ = await _ask(client, model, item, task.max_tokens)
        return item.score(text)

    return await together([one(item) for item in task.held_out])


async def _population(client: AsyncOpenAI, unit: Unit, model: str, number: int) -> dict[str, Any]:
    """Everything that one population is asked, rewarded; the status once another one is open."""
    arm, free, closed = ARMS[unit.arm], asyncio.Semaphore(MEMBERS), False

    async def one(item: Item, turn: int) -> None:
        nonlocal closed
        async with free:
            if closed:
                return
            score = 0.0
            if arm.asks:
                text, episode, population = await _ask(client, model, item, unit.task.max_tokens)
                score = item.score(text)
            else:
                episode, population = await _open(client, item)
            # Answers of the live model belong to no population.
            closed = closed or population not in (number, None)
            reward = posted(unit.arm, score, f"{unit.name}/{number}/{item.id}/{turn}")
            body = {"episode_id": episode, "reward": reward, "reward_id": f"bench-{episode}"}
            await client.post("/feedback", cast_to=dict[str, Any], body=body)

    deadline = time.monotonic() + WAIT_SECONDS
    turns = 0
    wanted = [item for item in _items(unit, number) for _ in range(MEMBERS)]
    while True:
        await together([one(item, turns + place) for place, item in enumerate(wanted)])
        turns += len(wanted)
        for _ in range(100):
            status = await _status(client)
            if status["population"]["id"] != number:
                return status
            if status["population"]["rewards"] < MEMBERS * unit.task.each:
                break
            await asyncio.sleep(0.2)
        # A share of the episodes went to the live model: as many again are asked.
        wanted = wanted[-max(1, MEMBERS * unit.task.each - status["population"]["rewards"]) :]
        if time.monotonic() > deadline:
            raise RuntimeError(f"{unit.name}: population {number} does not close: {status['population']}")


def _items(unit: Unit, number: int) -> list[Item]:
    """The prompts of a population: the task's in ever new orders, a few at a time."""
    training, each = unit.task.training, unit.task.each
    found = []
    for place in range(number * each, number * each + each):
        deck = random.Random(f"{unit.seed}/{place // len(training)}").sample(training, len(training))
        found.append(deck[place % len(training)])
    return found


async def _ask(client: AsyncOpenAI, model: str, item: Item, max_tokens: int) -> tuple[str, str, int | None]:
    """The answer, its episode, and its population (None: the live model's)."""
    completion = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": item.text}],
        temperature=0,
        max_tokens=max_tokens,
        extra_body={"seedbed": {"group": item.id}},
    )
    about = (completion.model_extra or {})["seedbed"]
    return completion.choices[0].message.content or "", about["episode_id"], about.get("population")


async def _open(client: AsyncOpenAI, item: Item) -> tuple[str, int | None]:
    reply: dict[str, Any] = await client.post("/episodes", cast_to=dict[str, Any], body={"group": item.id})
    return reply["id"], reply.get("population")


async def _status(client: AsyncOpenAI) -> dict[str, Any]:
    """The status, once a population is open. Raises RuntimeError when none opens."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        status: dict[str, Any] = await client.get("/status", cast_to=dict[str, Any])
        if status["population"] is not None:
            return status
        if time.monotonic() > deadline:
            raise RuntimeError(f"no population is open: {status['warnings']}")
        await asyncio.sleep(0.2)
