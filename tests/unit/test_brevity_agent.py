"""How the brevity agent speaks to a server: the `openai` package as it is, over a transport of the test."""

import json
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError

from seedbed_agents.brevity.agent import Agent
from seedbed_agents.brevity.evaluate import evaluate
from seedbed_agents.brevity.options import Recipe
from seedbed_agents.brevity.questions import TRAINING
from seedbed_agents.brevity.reward import reward
from seedbed_agents.brevity.rounds import explore_population, population_questions, read_status, read_updates

SIZE = 4
ANSWER = "It is Paris."


class Server:
    """Leases members in turn; a population is complete with `needed` rewards."""

    def __init__(self, needed: int) -> None:
        self.asked: list[dict[str, Any]] = []
        self.rewards: list[dict[str, Any]] = []
        self.population = 7
        self.needed = needed

    def agent(self) -> Agent:
        transport = httpx.AsyncClient(transport=httpx.MockTransport(self.answer))
        client = AsyncOpenAI(
            base_url="http://seedbed/v1", api_key="none", http_client=transport, max_retries=0
        )
        return Agent(client, "toy", max_tokens=9, concurrency=2)

    def answer(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content or "{}")
        match request.url.path:
            case "/v1/chat/completions":
                return self.complete(body)
            case "/v1/feedback":
                self.rewards.append(body)
                if len(self.rewards) == self.needed:
                    self.population += 1
                return httpx.Response(200, json={"result": "accepted"})
            case "/v1/updates":
                return httpx.Response(200, json={"data": [{"record_bytes": 170}, {"record_bytes": 171}]})
            case "/v1/status":
                return httpx.Response(200, json=self.status())
        return httpx.Response(404, json={"error": {"message": "no such route"}})

    def complete(self, body: dict[str, Any]) -> httpx.Response:
        if body["max_tokens"] != 9 or body["temperature"] != 0:
            return httpx.Response(400, json={"error": {"message": "max_tokens"}})
        self.asked.append(body)
        explores = not body["model"].endswith(":live")
        place = {
            "episode_id": f"ep_{len(self.asked)}",
            "population": self.population if explores else None,
            "member": len(self.asked) % SIZE if explores else None,
        }
        message = {"role": "assistant", "content": ANSWER}
        return httpx.Response(
            200,
            json={
                "id": "c",
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "length"}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8},
                "seedbed": place,
            },
        )

    def status(self) -> dict[str, Any]:
        return {
            "version": self.population - 7,
            "digest": "ab",
            "population": {"id": self.population, "size": SIZE, "waiting_for": "rewards"},
            "sigma": 0.005,
            "last_update": None,
        }


RECIPE = Recipe(model="toy", updates=3, members=SIZE, questions_per_population=2)


async def test_each_question_of_a_population_is_asked_once_for_every_member_and_rewarded() -> None:
    server = Server(needed=2 * SIZE)
    agent = server.agent()
    seen = []
    after = await explore_population(agent, RECIPE, await read_status(agent.client), seen.append)
    questions = population_questions(RECIPE, 7)
    assert sorted(body["seedbed"]["group"] for body in server.asked) == sorted(
        q.id for q in questions for _ in range(SIZE)
    )
    assert {body["messages"][-1]["content"] for body in server.asked} == {q.text for q in questions}
    assert {body["episode_id"] for body in server.rewards} == {f"ep_{i + 1}" for i in range(2 * SIZE)}
    assert len({body["reward_id"] for body in server.rewards}) == 2 * SIZE
    assert [a.reward for a in seen] == [reward(ANSWER, a.question.keywords) for a in seen]
    assert [a.tokens for a in seen] == [3] * 2 * SIZE
    assert all(a.truncated for a in seen)
    assert after.population == 8


async def test_a_population_that_closes_early_leaves_the_next_one_untouched() -> None:
    server = Server(needed=3)
    agent = server.agent()
    after = await explore_population(agent, RECIPE, await read_status(agent.client))
    assert after.population == 8
    # Two may be on their way when it closes; what they say of the next population earns nothing.
    assert 3 <= len(server.rewards) <= len(server.asked) <= 3 + agent.concurrency
    assert len(server.rewards) <= 4


async def test_measuring_asks_the_live_model_and_rewards_nothing() -> None:
    server = Server(needed=1)
    found = await evaluate(server.agent(), 5, TRAINING[:3])
    assert {body["model"] for body in server.asked} == {"toy:live"}
    assert server.rewards == []
    assert found.version == 5
    assert [a.question for a in found.answers] == [q.text for q in TRAINING[:3]]
    assert (found.words, found.truncated, found.empty) == (3.0, 3, 0)
    assert found.correct == sum("paris" in q.keywords for q in TRAINING[:3])


async def test_the_adaptation_is_as_large_as_its_records() -> None:
    updates, size = await read_updates(Server(needed=1).agent().client)
    assert (len(updates), size) == (2, 341)


async def test_a_refusal_reaches_the_caller_as_it_is() -> None:
    agent = Server(needed=1).agent()
    spoilt = Agent(agent.client, "toy", max_tokens=10, concurrency=2)
    with pytest.raises(BadRequestError, match="max_tokens"):
        await spoilt.ask_all(TRAINING[:5])
