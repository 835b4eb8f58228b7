"""Rewards in many orders: the same final state, to the last bit, for every order that the rules call equal.

Events are: a completion is on record, a reward is posted, the population closes (`reward_desk`). Two of them
must keep their order only where the rules say so: if they are for one target, if they use one reward_id, or
if one of them is the closing and the other a reward. All the rest may be shuffled at will.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.reward_desk import COMPLETIONS, EPISODES, Closes, Event, Post, Recorded, run


def tied(one: Event, other: Event) -> bool:
    """Whether the rules give a meaning to the order of two events."""
    if isinstance(one, Closes) or isinstance(other, Closes):
        return True
    assert isinstance(one, Post)
    assert isinstance(other, Post)
    same_target = (one.episode_id, one.completion_id) == (other.episode_id, other.completion_id)
    return same_target or (one.reward_id is not None and one.reward_id == other.reward_id)


def another_order(events: Sequence[Event], generator: random.Random) -> list[Event]:
    """A random order that keeps every tie: any event may come next whose tied predecessors have come."""
    before: list[set[int]] = [{i for i in range(j) if tied(events[i], events[j])} for j in range(len(events))]
    order: list[int] = []
    left = set(range(len(events)))
    while left:
        ready = sorted(j for j in left if not (before[j] & left))
        choice = ready[generator.randrange(len(ready))]
        left.remove(choice)
        order.append(choice)
    return [events[index] for index in order]


rewards = st.one_of(
    st.floats(-9, 9), st.sampled_from([0.1, 0.2, 0.3, -0.0, 0.0]), st.sampled_from([math.nan, math.inf])
)


@st.composite
def scenarios(draw: st.DrawFn) -> list[Event]:
    events: list[Event] = []
    for number in range(draw(st.integers(0, 24))):
        episode = draw(st.sampled_from((*EPISODES, "nobody")))
        names = [c for c, owner in COMPLETIONS.items() if owner == episode]
        completion = draw(st.sampled_from((None, *names, "no-such")))
        if completion in COMPLETIONS:
            events.append(Recorded(str(completion)))
        reward_id = draw(st.sampled_from((None, "r1", "r2", f"own{number}")))
        events.append(Post(number, episode, completion, draw(rewards), reward_id))
        if draw(st.integers(0, 5)) == 0:
            # The same post again: an agent that did not hear the answer.
            events.append(Post(100 + number, episode, completion, draw(rewards), reward_id))
    if draw(st.booleans()):
        events.insert(draw(st.integers(0, len(events))), Closes())
    # On record before anything is posted; `test_a_reward_that_overtakes...` has the others.
    known = [event for event in events if isinstance(event, Recorded)]
    return [*dict.fromkeys(known), *(event for event in events if not isinstance(event, Recorded))]


@settings(max_examples=150, deadline=None)
@given(scenarios(), st.integers(0, 2**32))
def test_every_order_that_the_rules_call_equal_ends_the_same(events: list[Event], seed: int) -> None:
    head = [event for event in events if isinstance(event, Recorded)]
    tail = [event for event in events if not isinstance(event, Recorded)]
    expected = run(events)
    generator = random.Random(seed)
    for _ in range(8):
        assert run([*head, *another_order(tail, generator)]) == expected


def test_ten_thousand_orders_of_one_eventful_day_end_the_same() -> None:
    events: list[Event] = [Recorded(name) for name in COMPLETIONS]
    number = 0
    for episode in EPISODES:
        # Own targets, own ids: every one of these may come at any time, also before its completion.
        for completion in (c for c, owner in COMPLETIONS.items() if owner == episode):
            events.append(Post(number, episode, completion, 0.1 * number + 1 / 3, f"id{number}"))
            number += 1
    for value in (0.4, 0.7):  # a reward and its replacement
        events.append(Post(number, "e0", None, value, None))
        number += 1
    for value in (1.5, 1.5, 2.5):  # one reward_id: accepted, duplicate, conflict
        events.append(Post(number, "e1", None, value, "once"))
        number += 1
    events += [
        Post(90, "e2", None, math.nan, None),
        Post(91, "nobody", None, 1.0, None),
        Post(92, "e2", "no-such", 1.0, None),
        Post(93, "e3", None, 7.5, None),  # held at 5
    ]
    events.append(Closes())
    events.append(Post(94, "e4", None, 3.0, None))  # late
    expected = run(events)
    answers = expected[4]
    assert isinstance(answers, dict)
    assert [answers[name] for name in (12, 13, 14, 15, 16)] == [
        "accepted", "replaced", "accepted", "duplicate", "conflict",
    ]  # fmt: skip
    assert [answers[name] for name in (90, 91, 92, 93, 94)] == [
        "refused", "unknown", "unknown", "accepted", "late",
    ]  # fmt: skip
    assert expected[5] == []
    generator = random.Random(1)
    closing = events.index(Closes())
    for _ in range(10_000):
        # The shuffle of everything before the closing, ties kept by sorting the tied ones back.
        shuffled = events[:closing]
        generator.shuffle(shuffled)
        for names in ((12, 13), (14, 15, 16)):
            places = [i for i, e in enumerate(shuffled) if isinstance(e, Post) and e.name in names]
            for place, event in zip(places, sorted((shuffled[i] for i in places), key=str), strict=True):
                shuffled[place] = event
        assert run([*shuffled, *events[closing:]]) == expected


def test_a_reward_that_overtakes_its_completion_ends_as_if_it_had_waited_its_turn() -> None:
    post, record = Post(0, "e0", "e0-c0", 1.0, "r"), Recorded("e0-c0")
    assert run([post, record]) == run([record, post])
    alone = run([post])
    assert alone[5] == [0], "it waits; the gateway bounds for how long"
    assert alone[0] != run([record, post])[0]


def test_orders_that_the_rules_do_not_call_equal_end_differently() -> None:
    one, other = Post(0, "e0", None, 1.0, None), Post(1, "e0", None, 2.0, None)
    assert run([one, other]) != run([other, one])
    first, second = Post(0, "e0", None, 1.0, "r"), Post(1, "e1", None, 1.0, "r")
    assert run([first, second]) != run([second, first])
    assert run([one, Closes()]) != run([Closes(), one])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_changes_nothing(value: float) -> None:
    base = [Post(0, "e0", None, 1.0, "r")]
    assert run([*base, Post(1, "e1", None, value, "r2")])[:4] == run(base)[:4]
