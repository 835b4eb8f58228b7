"""Agent frameworks that know nothing of Seedbed: only base URL, key or headers point them at an episode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.accept.clients.program import Results

pytestmark = [pytest.mark.engine, pytest.mark.smollm2]

CASES = [
    ("use_langchain", "conversation", 4),
    ("use_langchain", "responses", 2),
    ("use_agents", "tool_loop", 3),
    ("use_agents", "tool_loop_of_responses", 3),
    ("use_litellm", "conversation", 3),
]


@pytest.mark.parametrize("way", ["url", "key", "header"])
@pytest.mark.parametrize(("program", "case", "turns"), CASES, ids=[f"{p}-{c}" for p, c, _ in CASES])
def test_an_episode_of_many_turns_keeps_its_member_and_gets_its_reward(
    program: str,
    case: str,
    turns: int,
    way: str,
    ran: Callable[..., Results],
    rows: Callable[..., list[Any]],
) -> None:
    fact = ran(program).facts(case)[way]
    assert fact["asked"] == [[fact["episode"], str(fact["member"])]] * turns
    assert fact["posted"]["result"] == "accepted"
    assert fact["posted"]["member"] == fact["member"]
    assert (fact["state"]["completions"], fact["state"]["reward"]) == (turns, fact["reward"])
    query = "SELECT DISTINCT member FROM completions WHERE episode_id = ?"
    assert rows(query, fact["episode"]) == [(fact["member"],)]
    stored = rows("SELECT reward, counts FROM rewards WHERE episode_id = ?", fact["episode"])
    assert stored == [(fact["reward"], 1)]


@pytest.mark.parametrize("program", ["use_langchain", "use_agents", "use_litellm"])
def test_every_body_and_event_is_what_the_strict_models_of_openai_take(
    program: str, ran: Callable[..., Results]
) -> None:
    results = ran(program)
    assert not results.problems, "\n".join(results.problems)
    assert min(results.looked_at) > 8


def test_langchain_gets_tools_structure_and_streams(ran: Callable[..., Results]) -> None:
    for fact in ran("use_langchain").facts("conversation").values():
        told = fact["told"]
        assert told["call"][0] == "weather"
        assert told["call"][1]["city"] in ("Paris", "Rome")
        assert told["pieces"] > 3
        assert told["text"]
        assert told["usage"]["output_tokens"] == 8
        assert told["trip"]["days"] in (1, 2, 3)
    for fact in ran("use_langchain").facts("responses").values():
        assert fact["told"]["text"]
        assert fact["told"]["streamed"]
        assert fact["told"]["pieces"] > 3


@pytest.mark.parametrize("case", ["tool_loop", "tool_loop_of_responses"])
def test_the_agent_loop_calls_one_tool_after_the_other(case: str, ran: Callable[..., Results]) -> None:
    facts = ran("use_agents").facts(case)
    for fact in facts.values():
        told = fact["told"]
        assert told["called"] == ["look_up", "write_down"]
        assert told["output"].startswith("Written down: ")
        assert told["said"]
        assert told["requests"] == 2
        assert told["tokens"] > 0
    assert facts["key"]["streamed"] == [True] * 3
    assert facts["url"]["streamed"] == [False] * 3


def test_litellm_gets_tools_and_streams_and_sorts_errors(ran: Callable[..., Results]) -> None:
    for fact in ran("use_litellm").facts("conversation").values():
        told = fact["told"]
        assert told["call"][0] == "weather"
        assert told["pieces"] > 3
        assert told["text"]
        assert told["tokens"] <= 8
    found = ran("use_litellm").facts("errors")
    assert found["model"] == {"kind": "NotFoundError", "status": 404}
    assert found["overflow"] == {"kind": "ContextWindowExceededError", "status": 400}
    assert found["temperature"] == {"kind": "BadRequestError", "status": 400}
