"""Attribution under concurrency: every answer has the tokens of the member that is on record for it."""

from __future__ import annotations

import sqlite3

import pytest

from tests.accept.clients.crowd import TOLERANCE, Findings, examine
from tests.e2e.served import Served

pytestmark = pytest.mark.engine

EPISODES, TURNS, TOKENS = 200, 3, 10


@pytest.fixture(scope="module")
def findings(toy: Served) -> Findings:
    return examine(toy, episodes=EPISODES, turns=TURNS, tokens=TOKENS, at_once=32, seed=1, timeout=300)


def test_every_answer_was_made_by_the_member_on_record(findings: Findings) -> None:
    completions = findings.completions
    assert len(completions) == EPISODES * TURNS
    assert all(len(turn["tokens"]) == TOKENS for turn in completions)
    print(f"largest distance: {findings.worst:.2e}; confused: {findings.confused}; faults: {findings.faults}")
    wrong = [turn for turn in completions if turn["distance"] > TOLERANCE]
    assert not wrong, f"{len(wrong)} of {len(completions)} answers are not their member's: {wrong[:2]}"


def test_no_other_member_explains_them(findings: Findings) -> None:
    assert findings.confused <= 0.05 * len(findings.completions)


def test_what_was_answered_is_what_is_on_record(findings: Findings) -> None:
    for turn in findings.completions:
        about = turn["seedbed"]
        assert turn["completion"] == about["completion_id"] == turn["header"]
        member = (int(about["seed"]), about["sign"] * about["sigma"])
        assert findings.members[about["member"]] == member


def test_episodes_are_kept_apart_and_together(findings: Findings) -> None:
    of_agents = [{turn["seedbed"]["episode_id"] for turn in episode} for episode in findings.turns]
    assert all(len(ids) == 1 for ids in of_agents), [ids for ids in of_agents if len(ids) > 1][:3]
    assert len(set.union(*of_agents)) == EPISODES
    assert {turn["seedbed"]["member"] for turn in findings.completions} == set(range(16))


def test_failures_were_injected_and_nothing_was_made_twice(findings: Findings) -> None:
    assert min(findings.faults[name] for name in ("refuse", "lose", "hang up", "left a stream")) > 20
    for turn in findings.completions:
        assert turn["retry"] == (1 if turn["fault"] else 0)
        # After a stream that it left itself, a client's retry may mean that one: then it is asked again.
        if turn["fault"] == "lose" and not turn["hung_up"]:
            assert turn["mark"] == "replayed"
    ids = [turn["completion"] for turn in findings.completions]
    assert len(set(ids)) == len(ids)


def test_every_event_and_body_of_the_crowd_is_valid(findings: Findings) -> None:
    assert not findings.results.problems, "\n".join(findings.results.problems)


def test_rewards_land_on_the_members_that_earned_them(findings: Findings, toy: Served) -> None:
    given = {}
    with toy.http() as http:
        for number, episode in enumerate(findings.turns):
            id_ = episode[-1]["seedbed"]["episode_id"]
            given[id_] = (episode[-1]["seedbed"]["member"], float(number))
            answer = http.post("/v1/feedback", json={"episode_id": id_, "reward": float(number)}).json()
            assert (answer["result"], answer["member"]) == ("accepted", given[id_][0])
    with sqlite3.connect(f"file:{toy.store}?mode=ro", uri=True) as store:
        query = (
            "SELECT e.id, e.member, r.reward FROM rewards r JOIN episodes e ON e.id = r.episode_id "
            "WHERE r.counts"
        )
        stored = {id_: (member, reward) for id_, member, reward in store.execute(query)}
    assert {id_: stored[id_] for id_ in given} == given
