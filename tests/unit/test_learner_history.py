"""What groups earned before, in NumPy and as JSON."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbed_server.learner import (
    History,
    observe,
)
from seedbed_server.learner.history import Baseline, baseline_of, from_json, to_json

batches = st.lists(
    st.lists(st.tuples(st.sampled_from(["a", "b", "ß", None]), st.floats(-1e9, 1e9)), max_size=8), max_size=8
)


@settings(deadline=None)
@given(batches)
def test_a_history_is_the_mean_of_everything_that_was_observed(
    parts: list[list[tuple[str | None, float]]],
) -> None:
    history = History()
    for number, part in enumerate(parts):
        history = observe(history, part, population=number)
    flat = [item for part in parts for item in part]
    assert history.everything.count == len(flat)
    for group in {group for group, _ in flat if group is not None}:
        values = [value for name, value in flat if name == group]
        known = history.groups[group]
        assert known.count == len(values)
        assert known.mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-3)
        assert known.seen == max(n for n, part in enumerate(parts) if group in {g for g, _ in part})


@settings(deadline=None)
@given(batches, st.randoms())
def test_within_a_batch_the_order_changes_no_bit_and_json_keeps_every_bit(
    parts: list[list[tuple[str | None, float]]], random: object
) -> None:
    one = other = History()
    for number, part in enumerate(parts):
        shuffled = list(part)
        random.shuffle(shuffled)  # type: ignore[attr-defined]
        one = observe(one, part, population=number, memory=5)
        other = from_json(to_json(observe(other, shuffled, population=number, memory=5)))
    assert one == other
    assert from_json(to_json(one)) == one


def test_a_memory_lets_the_mean_follow_and_old_groups_are_forgotten_first() -> None:
    history = observe(History(), [("g", 0.0)] * 1000, population=0, memory=10)
    assert history.groups["g"].count == 10
    history = observe(history, [("g", 1.0)] * 5, population=1, memory=10)
    assert history.groups["g"].mean == 0.5
    history = observe(history, [("b", 1.0), ("a", 1.0)], population=2, keep=2)
    assert set(history.groups) == {"a", "b"}
    assert baseline_of(history, "g") == history.everything.mean == baseline_of(history, None)
    assert baseline_of(History(), "g") == 0.0


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format":2}', '{"format":1,"everything":[0,NaN,0],"groups":{}}']
    + [json.dumps({"format": 1, "everything": e, "groups": {}}) for e in ([1], [-1, 0, 0], [1, "x", 0], 3)],
)
def test_a_damaged_history_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"history: .*start without one"):
        from_json(text)


def test_a_reward_that_is_not_finite_is_no_history() -> None:
    with pytest.raises(ValueError, match="reward: nan of group 'g'"):
        observe(History(), [("g", math.nan)], population=0)
    assert observe(History(), [], population=4) == History({}, Baseline())
