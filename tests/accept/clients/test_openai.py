"""The newest openai package against a whole server: every case with the sync and with the async client.

What the cases do is in `programs/`; here is what must have come of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.accept.clients.conftest import MEMBERS, MODEL
from tests.accept.clients.program import Results

pytestmark = [pytest.mark.engine, pytest.mark.smollm2]

WAYS = ("whole", "streamed")


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def results(request: pytest.FixtureRequest, ran: Callable[..., Results]) -> Results:
    return ran("use_openai", asynchronous=request.param)


def text(answer: dict[str, Any], choice: int = 0) -> str:
    return str(answer["choices"][choice]["text"])


# -- shape -------------------------------------------------------------------------------------------


def test_every_body_and_event_is_what_the_strict_models_of_the_package_take(results: Results) -> None:
    bodies, events = results.looked_at
    assert not results.problems, "\n".join(results.problems)
    assert bodies > 100
    assert events > 500


def test_models_say_what_is_loaded(results: Results) -> None:
    found = results.facts("models")
    assert [model["id"] for model in found["listed"]] == [MODEL, f"{MODEL}:live"]
    assert [found["one"], found["live"]] == found["listed"]
    assert found["one"]["seedbed"]["context_length"] == 8192
    assert found["unknown"]["status"] == 404
    assert found["unknown"]["code"] == "model_not_found"


# -- chat --------------------------------------------------------------------------------------------


def test_an_answer_is_the_same_streamed_and_not_and_names_its_member(results: Results) -> None:
    found = results.facts("plain")
    whole, streamed = (found[way] for way in WAYS)
    assert text(whole) == text(streamed)
    assert whole["usage"]["completion_tokens"] == streamed["usage"]["completion_tokens"] <= 32
    assert whole["usage"]["prompt_tokens"] == streamed["usage"]["prompt_tokens"] > 20
    assert streamed["chunks"] > 5
    for answer, headers in zip((whole, streamed), found["headers"], strict=True):
        about = answer["seedbed"]
        assert answer["id"] == about["completion_id"] == headers["x-seedbed-completion"]
        assert about["episode_id"] == headers["x-seedbed-episode"]
        assert str(about["member"]) == headers["x-seedbed-member"]
        assert about["seed"] == headers["x-seedbed-seed"]
        assert str(about["version"]) == headers["x-seedbed-version"]
        assert answer["model"] == MODEL
    assert whole["seedbed"]["member"] == streamed["seedbed"]["member"]


def test_the_first_chunk_is_there_long_before_the_last(results: Results) -> None:
    streamed = results.facts("plain")["streamed"]
    assert streamed["first_seconds"] < 0.6 * streamed["seconds"]


def test_usage_is_only_streamed_to_those_who_ask(results: Results) -> None:
    assert results.facts("without_usage")["usage"] is None


def test_all_choices_come_from_one_member(results: Results) -> None:
    for way in WAYS:
        answer = results.facts("several_choices")[way]
        assert len(answer["choices"]) == 3
        assert all(choice["finish"] in ("stop", "length") for choice in answer["choices"])
        assert 3 <= answer["usage"]["completion_tokens"] <= 18
        assert answer["seedbed"]["member"] in range(MEMBERS)


def test_log_probabilities_have_one_entry_for_each_token(results: Results) -> None:
    whole, streamed = (results.facts("log_probabilities")[way] for way in WAYS)
    for answer in (whole, streamed):
        entries = answer["choices"][0]["logprobs"]
        assert len(entries) == answer["usage"]["completion_tokens"]
        assert "".join(entry["token"] for entry in entries).startswith(text(answer))
        for entry in entries:
            assert len(entry["top_logprobs"]) == 3
            best = max(top["logprob"] for top in entry["top_logprobs"])
            assert entry["logprob"] == pytest.approx(best, abs=1e-4), "temperature 0 takes the best one"
    the_same_log_probabilities(whole, streamed)


def test_a_token_without_a_text_has_its_log_probability(results: Results) -> None:
    whole, streamed = (results.facts("log_probabilities")["animals"][way] for way in WAYS)
    for answer in (whole, streamed):
        assert text(answer) == "🦄🐙"
        assert len(answer["choices"][0]["logprobs"]) == answer["usage"]["completion_tokens"] > 4
    the_same_log_probabilities(whole, streamed)


def the_same_log_probabilities(whole: dict[str, Any], streamed: dict[str, Any]) -> None:
    for one, other in zip(whole["choices"][0]["logprobs"], streamed["choices"][0]["logprobs"], strict=True):
        assert one["token"] == other["token"]
        assert one["logprob"] == pytest.approx(other["logprob"], abs=1e-3)


def test_stop_ends_the_text_before_the_word(results: Results) -> None:
    found = results.facts("stops")
    before = text(found["free"]).partition(found["stop"])[0]
    for way in WAYS:
        assert text(found[way]) == before
        assert found[way]["choices"][0]["finish"] == "stop"


def test_a_seed_repeats_a_sample(results: Results) -> None:
    found = results.facts("seeds")
    assert found["a"] == found["b"] == found["streamed"]
    assert found["a"] != found["c"]
    for way in WAYS:
        choices = found["several"][way]
        assert choices[0] == found["a"], "the first choice is that of the request without n"
        assert len(set(choices)) == 3
    assert found["several"]["whole"] == found["several"]["streamed"]


def test_both_names_of_the_limit_are_kept_to_the_token(results: Results) -> None:
    found = results.facts("limits")
    for way in WAYS:
        for name, count in (("max_tokens", 5), ("max_completion_tokens", 4)):
            assert found[name][way]["usage"]["completion_tokens"] == count
            assert found[name][way]["choices"][0]["finish"] == "length"


def test_metadata_is_taken(results: Results) -> None:
    for way in WAYS:
        assert text(results.facts("metadata")[way])


# -- tools and structure -----------------------------------------------------------------------------


def test_a_forced_tool_is_called_with_arguments_of_its_schema(results: Results) -> None:
    found = results.facts("tools")
    for way in WAYS:
        answer = found["named"][way]["choices"][0]
        assert [call["name"] for call in answer["tools"]] == ["weather"]
        assert answer["tools"][0]["id"]
        arguments = json.loads(answer["tools"][0]["arguments"])
        assert arguments["city"] in ("Paris", "Rome")
        assert arguments["days"] in (1, 2, 3)
        assert answer["finish"] == "tool_calls"
        required = found["required"][way]["choices"][0]
        assert {call["name"] for call in required["tools"]} <= {"weather", "light"}
        assert required["tools"]
        assert required["finish"] == "tool_calls"
        assert found["none"][way]["choices"][0]["tools"] == []
        assert text(found["afterwards"][way])
    assert len({found[kind][way]["seedbed"]["member"] for kind in found for way in WAYS}) == 1


def test_the_streaming_helper_of_the_package_puts_a_tool_call_together(results: Results) -> None:
    found = results.facts("tools_by_the_helper")
    assert found["name"] == "light"
    assert set(json.loads(found["arguments"])) == {"on"}
    assert "tool_calls.function.arguments.done" in found["kinds"]


def test_structured_output_has_its_structure(results: Results) -> None:
    found = results.facts("structure")
    assert found["parsed"]["city"] in ("Paris", "Rome")
    for way in WAYS:
        trip = json.loads(text(found["schema"][way]))
        assert set(trip) == {"city", "days"}
        free = found["object"][way]["choices"][0]
        assert free["text"].lstrip().startswith("{")
        if free["finish"] == "stop":
            assert isinstance(json.loads(free["text"]), dict)


def test_regular_expressions_and_grammars_bind_the_answer(results: Results) -> None:
    found = results.facts("grammars")
    for way in WAYS:
        assert re.fullmatch("(yes|no), [0-9]{3}", text(found["regex"][way]))
        assert text(found["ebnf"][way]) in ("red", "green")


# -- the other two routes ----------------------------------------------------------------------------


def test_text_completions_are_the_same_streamed_and_not(results: Results) -> None:
    found = results.facts("texts")
    for kind in ("plain", "tokens", "regex", "live"):
        whole, streamed = (found[kind][way] for way in WAYS)
        assert text(whole) == text(streamed)
        for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
            assert whole["usage"][count] == streamed["usage"][count]
        assert streamed["parts"] > 1
    for way in WAYS:
        assert (
            found["plain"][way]["choices"][0]["tokens"] == found["plain"][way]["usage"]["completion_tokens"]
        )
        assert found["plain"][way]["choices"][0]["top"] == found["plain"][way]["choices"][0]["tokens"]
        assert len(found["several"][way]["choices"]) == 4
        assert re.fullmatch(" [A-Z][a-z]{2,9}", text(found["regex"][way]))
        assert found["live"][way]["seedbed"]["member"] is None
        assert found["tokens"][way]["usage"]["prompt_tokens"] == 5
        assert found["plain"][way]["seedbed"]["member"] is not None
    assert text(found["echo"]).startswith("The capital of France is")


def test_responses_are_the_same_streamed_and_not(results: Results) -> None:
    found = results.facts("responses")
    for kind, pair in found.items():
        whole, streamed = (pair[way] for way in WAYS)
        assert whole["text"] == streamed["text"], kind
        assert [call["name"] for call in whole["calls"]] == [call["name"] for call in streamed["calls"]]
        assert streamed["kinds"][0] == "response.created"
        for answer in (whole, streamed):
            assert answer["id"] == answer["seedbed"]["completion_id"]
            assert answer["model"] == (f"{MODEL}:live" if kind == "live" else MODEL)
            assert answer["usage"]["output_tokens"] > 0
    for way in WAYS:
        assert found["plain"][way]["status"] == "completed"
        assert found["cut"][way]["status"] == "incomplete"
        assert found["cut"][way]["usage"]["output_tokens"] == 3
        assert [call["name"] for call in found["tool"][way]["calls"]] == ["weather"]
        assert json.loads(found["tool"][way]["calls"][0]["arguments"])["city"] in ("Paris", "Rome")
        assert set(json.loads(found["schema"][way]["text"])) == {"city", "days"}
        assert found["live"][way]["seedbed"]["member"] is None


def test_a_response_tells_its_log_probabilities(results: Results) -> None:
    found = results.facts("response_log_probabilities")
    assert len(found["entries"]) == found["used"] > 1
    for entry in found["entries"]:
        assert len(entry["top_logprobs"]) == 2
        best = max(top["logprob"] for top in entry["top_logprobs"])
        assert entry["logprob"] == pytest.approx(best, abs=1e-4), "temperature 0 takes the best one"


# -- what goes wrong ---------------------------------------------------------------------------------


def test_refusals_name_the_field_and_are_not_tried_again(results: Results) -> None:
    found = results.facts("refusals")
    unknown = {name for name in found if name.partition(" ")[2] == "model" or name.startswith("model ")}
    for name, failure in found.items():
        assert failure["kind"], f"{name}: {failure}"
        assert failure["status"] == (404 if name in unknown or name == "route" else 400), f"{name}: {failure}"
        assert failure["requests"] == 1, f"{name}: {failure}"
        field = name.removesuffix(" whole").removesuffix(" streamed").rpartition(" ")[2]
        if field not in ("overflow", "model", "route", "background", "web_search"):
            # SGLang spells some of them out.
            assert field in failure["message"].replace(" ", "_"), f"{name}: {failure}"
    for name in unknown:
        assert found[name]["code"] == "model_not_found"
        assert MODEL in found[name]["message"]
    for way in WAYS:
        assert re.search(r"\d{5} tokens.*8192 tokens", found[f"overflow {way}"]["message"])
        assert found[f"overflow {way}"]["code"] == "context_length_exceeded"


def test_conflicting_episodes_are_refused_with_both_names(results: Results) -> None:
    found = results.facts("permissions")
    for name in ("key and header", "url and header", "body and header", "metadata and body"):
        assert found[name]["status"] == 400, f"{name}: {found[name]}"
        assert all(episode in found[name]["message"] for episode in found["ids"]), f"{name}: {found[name]}"
    assert (found["unknown key"]["status"], found["unknown key"]["kind"]) == (401, "AuthenticationError")
    assert (found["unknown episode"]["status"], found["unknown episode"]["kind"]) == (404, "NotFoundError")
    assert (found["another's episode"]["status"], found["another's episode"]["kind"]) == (
        403,
        "PermissionDeniedError",
    )


def test_a_closed_episode_takes_no_more_and_the_package_does_not_insist(results: Results) -> None:
    found = results.facts("permissions")
    assert found["closed"] == ["closed", "closed"]
    assert found["closed by header"]["status"] == 409
    assert found["closed by header"]["code"] == "episode_closed"
    assert found["closed by header"]["headers"]["x-should-retry"] == "false"
    assert found["closed by header"]["requests"] == 1
    assert found["closed by key"]["status"] == 401
    assert found["closed by key"]["code"] == "session_ended"


# -- retries and clients that leave ------------------------------------------------------------------


def test_an_answer_that_was_lost_comes_again_and_is_not_made_again(
    results: Results, rows: Callable[..., list[Any]]
) -> None:
    found = results.facts("losses")
    session = found.pop("session")
    for name, case in found.items():
        place, fault, way = name.split(", ")
        first, second = case["requests"]
        assert [first["retry"], second["retry"]] == [0, 1], name
        assert case["answer"] == second["completion"], name
        if place == "episode":
            assert case["episode"] == session
        if fault == "refuse":
            assert first["completion"] is None
            continue
        assert case["episode"] == first["episode"] == second["episode"], f"{name}: the retry changed episodes"
        if fault == "lose" or way == "whole":
            assert second["completion"] == first["completion"], f"{name}: it was generated twice"
            assert second["mark"] == "replayed", name
        if fault == "lose":
            assert second["body"] == first["body"], name
        made = rows("SELECT status FROM completions WHERE id = ?", case["answer"])
        assert made == [("finished",)], name


def test_a_marked_repetition_joins_the_one_that_runs_and_an_unmarked_one_is_a_fresh_sample(
    results: Results,
) -> None:
    for way in WAYS:
        found = results.facts("repetitions")[way]
        first, second = found["joined"]
        assert first["text"]
        assert first == second, f"{way}: {found}"
        assert found["fresh"] != first["id"]
        assert "joined" in found["marks"]


def test_a_client_that_hangs_up_stops_its_generation_within_a_second(
    results: Results, rows: Callable[..., list[Any]]
) -> None:
    found = results.facts("hanging_up")
    query = "SELECT status, finished_at, completion_tokens FROM completions WHERE id = ?"
    [(status, ended_at, _)] = rows(query, found["completion"])
    assert status == "cancelled"
    assert ended_at - found["closed_at"] < 1.0
    assert found["free_after"] < 1.0
    assert found["waiting"]["kind"] == "APITimeoutError"
    assert found["free_after_waiting"] < 1.0


# -- members, episodes, rewards ----------------------------------------------------------------------


def test_the_live_model_is_the_same_for_everyone_and_moves_nothing(results: Results) -> None:
    found = results.facts("live")
    answers = [pair[way] for pair in found["by name"] for way in WAYS]
    assert len({text(answer) for answer in [*answers, found["by episode"], found["episode and name"]]}) == 1
    assert {answer["model"] for answer in answers} == {f"{MODEL}:live"}
    for answer in (*answers, found["by episode"], found["episode and name"]):
        assert answer["seedbed"]["member"] is None
        assert answer["seedbed"]["seed"] is None
    assert found["by episode"]["seedbed"]["episode_id"] == found["episode"]["id"]
    assert found["episode"]["explores"] is False
    assert found["explored"]["seedbed"]["member"] is not None


def test_every_way_leads_to_the_same_episode_and_member(results: Results) -> None:
    found = results.facts("ways_to_an_episode")
    episode = found["episode"]
    for way, abouts in found["found"].items():
        for about in abouts:
            assert about["episode_id"] == episode["id"], way
            assert {name: about[name] for name in ("member", "seed", "sigma", "sign")} == {
                name: episode[name] for name in ("member", "seed", "sigma", "sign")
            }, way
    assert found["models"] == [MODEL, f"{MODEL}:live"]
    assert found["afterwards"]["completions"] == 4 * len(found["found"])
    assert (found["afterwards"]["group"], found["afterwards"]["metadata"]) == ("capitals", {"who": "test"})
    assert "api_key" not in found["afterwards"]


def test_a_conversation_without_an_episode_stays_with_its_member(results: Results) -> None:
    found = results.facts("conversations")
    turns = found["turns"]
    assert len({turn["episode_id"] for turn in turns}) == 1
    assert len({turn["member"] for turn in turns}) == 1
    assert found["stranger"]["episode_id"] != turns[0]["episode_id"]
    assert found["again"]["episode_id"] != turns[0]["episode_id"]


def test_rewards_land_on_the_member_that_answered(results: Results, rows: Callable[..., list[Any]]) -> None:
    for way, fact in results.facts("rewards").items():
        assert set(fact["members"]) == {fact["member"]}, way
        assert fact["posted"]["result"] == "accepted", way
        assert (fact["posted"]["episode_id"], fact["posted"]["member"]) == (fact["episode"], fact["member"])
        assert fact["repeated"]["result"] == "duplicate", way
        assert (fact["changed"]["status"], fact["changed"]["requests"]) == (409, 1), way
        assert fact["state"]["reward"] == fact["reward"], way
        stored = rows(
            "SELECT e.member, r.reward FROM rewards r JOIN episodes e ON e.id = r.episode_id "
            "WHERE e.id = ? AND r.counts",
            fact["episode"],
        )
        assert stored == [(fact["member"], fact["reward"])], way


def test_many_members_share_a_connection_and_one_member_many(results: Results) -> None:
    found = results.facts("connections")
    assert len(set(found["one connection"])) > MEMBERS // 2
    episode = found["episode"]
    assert {(id_, member) for id_, member, _ in found["one member"]} == {(episode["id"], episode["member"])}
    assert len({said for _, _, said in found["one member"]}) == 1, "one member, one answer at temperature 0"
