"""The agent: asks through the `openai` package as it is, and posts what each answer was worth.

The server decides which member answers. The agent only names the question as the group of its request, so
that the server gives each member the same questions, and says afterwards what the answer earned.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from openai import AsyncOpenAI

from seedbed_agents.brevity.reward import count_words, has_keyword, reward

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from seedbed_agents.brevity.questions import Question

__all__ = ["Agent", "Answer", "connect", "together"]

T = TypeVar("T")

# A busy server may hold a request during an update, and asks to come again when that takes too long.
RETRIES = 8
TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, and what the agent makes of it."""

    question: Question
    text: str
    # Whether max_tokens cut it.
    truncated: bool
    # Completion tokens.
    tokens: int
    # None for the unperturbed live model.
    member: int | None
    # None where the server named no population.
    population: int | None
    episode: str | None

    @property
    def words(self) -> int:
        """Its length."""
        return count_words(self.text)

    @property
    def correct(self) -> bool:
        """Whether an expected keyword is in it."""
        return has_keyword(self.text, self.question.keywords)

    @property
    def reward(self) -> float:
        """What it is worth, 0 to 1."""
        return reward(self.text, self.question.keywords)


def connect(base_url: str) -> AsyncOpenAI:
    """A client for a server that asks for no key; `base_url` ends in `/v1`."""
    return AsyncOpenAI(base_url=base_url, api_key="none", max_retries=RETRIES, timeout=TIMEOUT_SECONDS)


@dataclass(frozen=True, slots=True)
class Agent:
    """Asks one model, with at most `concurrency` questions on their way at once."""

    client: AsyncOpenAI
    model: str
    max_tokens: int
    concurrency: int

    async def ask(self, question: Question, model: str | None = None) -> Answer:
        """Ask one question. Raises openai.OpenAIError when the server cannot answer."""
        completion = await self.client.chat.completions.create(
            model=model or self.model,
            messages=[{"role": "user", "content": question.text}],
            temperature=0,
            max_tokens=self.max_tokens,
            extra_body={"seedbed": {"group": question.id}},
        )
        choice, usage = completion.choices[0], completion.usage
        place: dict[str, Any] = (completion.model_extra or {}).get("seedbed") or {}
        return Answer(
            question=question,
            text=(choice.message.content or "").strip(),
            truncated=choice.finish_reason == "length",
            tokens=usage.completion_tokens if usage else 0,
            member=place.get("member"),
            population=place.get("population"),
            episode=place.get("episode_id"),
        )

    async def post_reward(self, answer: Answer) -> str:
        """Post the reward of an explored answer; returns what became of it, such as `accepted`."""
        # The same reward_id every time: a post that is repeated after a lost reply counts once.
        body = {
            "episode_id": answer.episode,
            "reward": answer.reward,
            "reward_id": f"brevity-{answer.episode}",
        }
        reply = await self.client.post("/feedback", cast_to=dict[str, Any], body=body)
        return str(reply["result"])

    async def ask_all(
        self,
        questions: Iterable[Question],
        model: str | None = None,
        seen: Callable[[Answer], None] | None = None,
    ) -> list[Answer]:
        """Ask all of them without rewards, answers in their order; `seen` hears each one as it comes."""
        free = asyncio.Semaphore(self.concurrency)

        async def one(question: Question) -> Answer:
            async with free:
                answer = await self.ask(question, model)
            if seen:
                seen(answer)
            return answer

        return await together(map(one, questions))

    async def explore(
        self, questions: Iterable[Question], population: int, seen: Callable[[Answer], None] | None = None
    ) -> list[Answer]:
        """Ask all of them and post each answer's reward, as long as `population` is the open one.

        A population that was half complete before closes early: what is not asked by then is left, and
        answers of the next population earn nothing, because their questions are not its own.
        """
        free = asyncio.Semaphore(self.concurrency)
        closed = False

        async def one(question: Question) -> Answer | None:
            nonlocal closed
            async with free:
                if closed:
                    return None
                answer = await self.ask(question)
                if answer.population != population:
                    closed = True
                    return None
                await self.post_reward(answer)
            if seen:
                seen(answer)
            return answer

        return [answer for answer in await together(map(one, questions)) if answer]


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines together; the first error ends the others. Their results, in their order."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except* Exception as errors:  # noqa: BLE001 - raised again, without its group
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
