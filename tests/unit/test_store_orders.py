"""Rewards in many orders against a real store: the same rows, population, step and journal for every order
that the rules call equal, also when the process dies in between.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from seedbed_server.gateway.plan import Plan
from tests.unit.store_desk import COMPLETIONS, NAMES, Closes, Event, Post, StoreDesk, plan

PLANS: dict[str, Plan] = {
    "mean": plan(),
    "discounted": plan(aggregation="discounted-sum", discount=0.5, estimator="group-baseline"),
    "last": plan(aggregation="last", estimator="centered-rank", stale_limit=0),
}


@pytest.fixture(scope="module", params=sorted(PLANS))
def desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreDesk]:
    made = StoreDesk(tmp_path_factory.mktemp("orders") / "store.sqlite", PLANS[request.param])
    yield made
    made.close()


def tied(one: Event, other: Event) -> bool:
    """Whether the rules give a meaning to the order of two events."""
    if isinstance(one, Closes) or isinstance(other, Closes):
        return True
    same_target = (one.episode_id, one.completion_id) == (other.episode_id, other.completion_id)
    return same_target or (one.reward_id is not None and one.reward_id == other.reward_id)


def another_order(events: list[Event], generator: random.Random) -> list[Event]:
    before = [{i for i in range(j) if tied(events[i], events[j])} for j in range(len(events))]
    order: list[int] = []
    left = set(range(len(events)))
    while left:
        ready = sorted(j for j in left if not (before[j] & left))
        choice = ready[generator.randrange(len(ready))]
        left.remove(choice)
        order.append(choice)
    return [events[index] for index in order]


rewards = st.one_of(
    st.floats(-9, 9), st.sampled_from([0.1, 0.2, 0.3, -0.0]), st.sampled_from([math.nan, math.inf])
)


@st.composite
def posts(draw: st.DrawFn, number: int) -> Post:
    episode = draw(st.sampled_from((*NAMES, "nobody")))
    names = [completion for completion, owner in COMPLETIONS.items() if owner == episode]
    completion = draw(st.sampled_from((None, *names, "no-such")))
    reward_id = draw(st.sampled_from((None, "r1", "r2", f"own{number}")))
    final = draw(st.sampled_from((None, None, None, False, True)))
    return Post(number, episode, completion, draw(rewards), reward_id, final)


@st.composite
def scenarios(draw: st.DrawFn) -> list[Event]:
    events: list[Event] = []
    for number in range(draw(st.integers(0, 20))):
        post = draw(posts(number))
        events.append(post)
        if draw(st.integers(0, 5)) == 0:
            # The same post again: an agent that did not hear the answer.
            again = Post(100 + number, post.episode_id, post.completion_id, post.reward, post.reward_id)
            events.append(again)
    for _ in range(draw(st.integers(0, 2))):
        events.insert(draw(st.integers(0, len(events))), Closes())
    return events


def run(desk: StoreDesk, events: list[Event], together: int = 1) -> tuple[object, ...]:
    desk.begin()
    desk.take(events, together)
    return desk.final()


def run_with_a_death(desk: StoreDesk, events: list[Event], generator: random.Random) -> tuple[object, ...]:
    """The same, but that the process dies somewhere and another one goes on."""
    cut = generator.randrange(len(events) + 1)
    desk.begin()
    desk.take(events[:cut])
    answers = dict(desk.answers)
    desk.reopen()
    desk.answers = answers
    desk.take(events[cut:])
    return desk.final()


@settings(max_examples=60, deadline=None)
@given(scenarios(), st.integers(0, 2**32))
def test_every_order_that_the_rules_call_equal_ends_the_same_in_the_store(
    desk: StoreDesk, events: list[Event], seed: int
) -> None:
    expected = run(desk, events)
    generator = random.Random(seed)
    for together in (1, 4, 64):
        assert run(desk, another_order(events, generator), together) == expected


@settings(max_examples=12, deadline=None)
@given(scenarios(), st.integers(0, 2**32))
def test_a_death_in_the_middle_of_an_order_changes_nothing(
    desk: StoreDesk, events: list[Event], seed: int
) -> None:
    expected = run(desk, events)
    generator = random.Random(seed)
    assert run_with_a_death(desk, another_order(events, generator), generator) == expected


def test_an_eventful_day_with_every_kind_of_answer(desk: StoreDesk) -> None:
    events: list[Event] = [
        Post(0, "e0", None, 0.4, None),
        Post(1, "e0", None, 0.7, None),
        Post(2, "e1", None, 1.5, "once"),
        Post(3, "e1", None, 1.5, "once"),
        Post(4, "e1", None, 2.5, "once"),
        Post(5, "e2", "e2-c0", math.nan, None),
        Post(6, "nobody", None, 1.0, None),
        Post(7, "e5", None, 1.0, None),
        Closes(),
        Post(8, "e0", None, 3.0, None),
        Post(9, "e5", None, 9.0, None),
        Post(10, "e3", None, 1.0, None),
    ]
    *_, answers = run(desk, events)
    stale = "late" if desk.plan.rewards.stale.limit == 0 else "accepted"
    assert list(answers.values()) == [  # type: ignore[attr-defined]
        "accepted", "replaced", "accepted", "duplicate", "conflict", "refused", "unknown", stale,
        "late", "late", stale,
    ]  # fmt: skip


def test_whatever_happens_the_population_in_memory_is_the_one_of_the_rows(tmp_path: Path) -> None:
    class Machine(RuleBasedStateMachine):
        """Events as they come, with deaths in between."""

        shared = StoreDesk(tmp_path / "store.sqlite", PLANS["mean"])

        @initialize()
        def begin(self) -> None:
            self.shared.begin()
            self.number = 0

        @rule(data=st.data())
        def post(self, data: st.DataObject) -> None:
            self.number += 1
            self.shared.take([data.draw(posts(self.number))])

        @rule()
        def closes(self) -> None:
            self.shared.take([Closes()])

        @rule()
        def dies(self) -> None:
            before = self.shared.memory
            self.shared.reopen()
            assert self.shared.memory == before

        @invariant()
        def agrees(self) -> None:
            self.shared.final()

    try:
        run_state_machine_as_test(
            Machine, settings=settings(max_examples=10, stateful_step_count=15, deadline=None)
        )
    finally:
        Machine.shared.close()
