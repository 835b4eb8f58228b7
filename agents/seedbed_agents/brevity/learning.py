"""The middle of the demo: measure the base, learn until enough updates are made, measure again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seedbed_agents.brevity.agent import Agent, Answer, connect
from seedbed_agents.brevity.evaluate import Evaluation, evaluate, spread_out
from seedbed_agents.brevity.progress import Display, Row
from seedbed_agents.brevity.questions import HELD_OUT
from seedbed_agents.brevity.rounds import NoProgress, Status, explore_population, read_status, read_updates
from seedbed_agents.brevity.run_directory import DirectoryError, RunDirectory

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from seedbed_agents.brevity.options import Recipe

__all__ = ["Learned", "learn"]

# Populations in a row that may say nothing before the demo gives up.
FRUITLESS = 5


@dataclass(frozen=True, slots=True)
class Learned:
    """What the server and its model were seen to do."""

    before: Evaluation
    after: Evaluation
    updates: tuple[dict[str, Any], ...]
    looks: tuple[dict[str, Any], ...]
    adaptation_bytes: int
    digest: str
    # Of explored answers, updates included; None where this run explored none.
    tokens_per_second: float | None


@dataclass(slots=True)
class Meter:
    """Counts answers and tokens from its making on."""

    total: int
    label: str
    display: Display
    answers: int = 0
    words: int = 0
    tokens: int = 0
    begin: float = 0.0

    def __post_init__(self) -> None:
        self.begin = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since its making."""
        return time.monotonic() - self.begin

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / max(self.seconds, 1e-9)

    def __call__(self, answer: Answer) -> None:
        """Count one answer, and show where things stand."""
        self.answers += 1
        self.words += answer.words
        self.tokens += answer.tokens
        self.display.doing(f"{self.label}: {self.answers} of {self.total} answers, {self.rate:.0f} tok/s")


async def learn(recipe: Recipe, run: RunDirectory, base_url: str, display: Display) -> Learned:
    """All of it, against a server that is ready. Raises NoProgress, DirectoryError or openai.OpenAIError."""
    async with connect(base_url) as client:
        agent = Agent(client, await _served_name(client), recipe.max_tokens, concurrency=recipe.members)
        status = await read_status(client)
        if run.resumed:
            display.say(
                f"An interrupted demo goes on: {status.version} of {recipe.updates} updates are made."
            )
        before = await _before(agent, run, status, display)
        count = len(before.answers)
        display.say(f"Before: {before.words:.1f} words per answer, keyword in {before.correct} of {count}.")
        status, rate = await _populations(agent, recipe, run, status, display)
        after = await evaluate(agent, status.version, seen=Meter(count, "after: the live model", display))
        updates, adaptation_bytes = await read_updates(client)
        return Learned(before, after, updates, run.notes.looks, adaptation_bytes, status.digest, rate)


async def _populations(
    agent: Agent, recipe: Recipe, run: RunDirectory, status: Status, display: Display
) -> tuple[Status, float | None]:
    """Population after population until the last update is made; the end's status, and tokens per second."""
    tokens, seconds, fruitless = 0, 0.0, 0
    while status.version < recipe.updates:
        label = f"version {status.version}, population {status.population}"
        meter = Meter(recipe.questions_per_population * status.size, label, display)
        after = await explore_population(agent, recipe, status, meter)
        tokens, seconds = tokens + meter.tokens, seconds + meter.seconds
        if after.version > status.version:
            fruitless = 0
            display.add(_row(status, after, meter, await _look(agent, recipe, run, after, display)))
        else:
            fruitless += 1
            display.say(f"Population {status.population} led to no update: its rewards point nowhere.")
        if fruitless == FRUITLESS:
            raise NoProgress(f"version {status.version}: {FRUITLESS} populations in a row led to no update")
        status = after
    return status, tokens / seconds if seconds else None


async def _served_name(client: AsyncOpenAI) -> str:
    """The name that explores; its twin `<name>:live` is the unperturbed model."""
    names = [model.id async for model in await client.models.list()]
    return next(name for name in names if not name.endswith(":live"))


async def _before(agent: Agent, run: RunDirectory, status: Status, display: Display) -> Evaluation:
    """The base's answers: from the notes, or asked now."""
    if run.notes.before is None:
        if status.version:
            raise DirectoryError(
                f"{run.path}: its store has {status.version} updates and its notes lack the answers from "
                "before them; choose a new directory with --store"
            )
        before = await evaluate(agent, 0, seen=Meter(len(HELD_OUT), "before: the live model", display))
        run.note(before=before)
        return before
    return run.notes.before


async def _look(
    agent: Agent, recipe: Recipe, run: RunDirectory, status: Status, display: Display
) -> tuple[float, float] | None:
    """Every few updates: score and words of the live model on a few held-out questions."""
    if status.version % recipe.measure_every or status.version >= recipe.updates:
        return None
    questions = spread_out(HELD_OUT, recipe.measure_questions)
    seen = await evaluate(agent, status.version, questions, Meter(len(questions), "the live model", display))
    look = {"version": status.version, "questions": len(questions), "score": seen.score, "words": seen.words}
    run.note(looks=(*run.notes.looks, look))
    return seen.score, seen.words


def _row(before: Status, after: Status, meter: Meter, live: tuple[float, float] | None) -> Row:
    return Row(
        version=after.version,
        sigma=before.sigma,
        reward_mean=after.reward_mean,
        reward_spread=after.reward_spread,
        words=meter.words / meter.answers if meter.answers else None,
        tokens_per_second=meter.rate,
        seconds=meter.seconds,
        live=live,
    )
