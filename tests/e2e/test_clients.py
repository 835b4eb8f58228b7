"""The clients that users have, at their newest releases and unmodified, against a whole server with SmolLM2.

These are the essential ones of `./run accept clients`: the same programs and the same expectations on fewer
cases. One engine start; the clients' environment is made when it is missing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.accept.clients.conftest import MODEL, serve_smollm2
from tests.accept.clients.program import Programs, Results
from tests.accept.clients.test_environment import (
    test_the_environment_has_the_newest_clients_and_nothing_of_the_server as test_the_environment,
)
from tests.accept.clients.test_openai import (
    test_a_forced_tool_is_called_with_arguments_of_its_schema as test_a_forced_tool,
)
from tests.accept.clients.test_openai import (
    test_a_response_tells_its_log_probabilities as test_log_probabilities_of_a_response,
)
from tests.accept.clients.test_openai import (
    test_a_seed_repeats_a_sample as test_a_seed,
)
from tests.accept.clients.test_openai import (
    test_a_token_without_a_text_has_its_log_probability as test_a_token_without_a_text,
)
from tests.accept.clients.test_openai import (
    test_an_answer_is_the_same_streamed_and_not_and_names_its_member as test_an_answer,
)
from tests.accept.clients.test_openai import (
    test_log_probabilities_have_one_entry_for_each_token as test_log_probabilities,
)
from tests.accept.clients.test_openai import (
    test_responses_are_the_same_streamed_and_not as test_responses,
)
from tests.accept.clients.test_openai import (
    test_structured_output_has_its_structure as test_structured_output,
)
from tests.e2e.served import Served

pytestmark = [pytest.mark.engine, pytest.mark.smollm2, pytest.mark.network]

__all__ = [
    "test_a_forced_tool",
    "test_a_seed",
    "test_a_token_without_a_text",
    "test_an_answer",
    "test_log_probabilities",
    "test_log_probabilities_of_a_response",
    "test_responses",
    "test_structured_output",
    "test_the_environment",
]

CASES = (
    "plain",
    "tools",
    "structure",
    "log_probabilities",
    "seeds",
    "responses",
    "response_log_probabilities",
    "refusals",
)
FRAMEWORKS = {"use_langchain": "conversation", "use_agents": "tool_loop", "use_litellm": "conversation"}


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all clients."""
    yield from serve_smollm2(smollm2_folder, tmp_path_factory.mktemp("smollm2-served"))


@pytest.fixture(scope="module")
def ran(smollm2: Served) -> Programs:
    """`ran("use_agents", only=("tool_loop",))`: what the program found."""
    return Programs(smollm2.url, MODEL)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def results(request: pytest.FixtureRequest, ran: Programs) -> Results:
    """Of the openai package."""
    return ran("use_openai", only=CASES, asynchronous=request.param)


def test_every_body_and_event_is_what_the_strict_models_take(results: Results) -> None:
    bodies, events = results.looked_at
    assert not results.problems, "\n".join(results.problems)
    assert bodies > 40
    assert events > 200


@pytest.mark.parametrize("way", ["url", "key", "header"])
@pytest.mark.parametrize("program", FRAMEWORKS)
def test_a_framework_stays_in_its_episode_and_its_reward_lands(
    program: str, way: str, ran: Programs, smollm2: Served
) -> None:
    results = ran(program, only=(FRAMEWORKS[program],))
    fact: dict[str, Any] = results.facts(FRAMEWORKS[program])[way]
    assert not results.problems, "\n".join(results.problems)
    assert len(fact["asked"]) >= 3
    assert {tuple(asked) for asked in fact["asked"]} == {(fact["episode"], str(fact["member"]))}
    assert (fact["posted"]["result"], fact["posted"]["member"]) == ("accepted", fact["member"])
    assert (fact["state"]["completions"], fact["state"]["reward"]) == (len(fact["asked"]), fact["reward"])
    with sqlite3.connect(f"file:{smollm2.store}?mode=ro", uri=True) as store:
        rows = store.execute(
            "SELECT e.member, r.reward, r.counts FROM rewards r JOIN episodes e ON e.id = r.episode_id "
            "WHERE e.id = ?",
            (fact["episode"],),
        ).fetchall()
    assert rows == [(fact["member"], fact["reward"], 1)]


def test_the_agent_loop_calls_one_tool_after_the_other(ran: Programs) -> None:
    facts = ran("use_agents", only=("tool_loop",)).facts("tool_loop")
    for fact in facts.values():
        assert fact["told"]["called"] == ["look_up", "write_down"]
        assert fact["told"]["output"].startswith("Written down: ")
    assert facts["key"]["streamed"] == [True] * 3
    assert facts["url"]["streamed"] == [False] * 3


def test_the_other_frameworks_get_their_call_and_their_stream(ran: Programs) -> None:
    for program in ("use_langchain", "use_litellm"):
        for fact in ran(program, only=("conversation",)).facts("conversation").values():
            assert fact["told"]["call"][0] == "weather"
            assert fact["told"]["call"][1]["city"] in ("Paris", "Rome")
            assert fact["told"]["pieces"] > 3
            assert fact["told"]["text"]
