"""Schedules at their ends, and everything by name with options that are checked."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbed_server.learner import (
    ESTIMATORS,
    SCHEDULES,
    History,
    cosine,
    dated_schedule,
    estimator,
    linear,
    observe,
    schedule,
)
from seedbed_server.learner.estimators import EpisodeReward
from tests.reference import learning

DAY = 86_400.0
NEW_YEAR = 1_767_225_600.0
spans = st.integers(1, 60).flatmap(lambda steps: st.tuples(st.just(steps), st.integers(0, steps - 1)))
pairs = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(lambda two: (max(two), min(two)))


@pytest.mark.parametrize("name", sorted(SCHEDULES))
@settings(deadline=None)
@given(pair=pairs, span=spans)
def test_schedules_by_version_are_numpys_and_exact_at_both_ends(
    name: str, pair: tuple[float, float], span: tuple[int, int]
) -> None:
    (start, floor), (steps, warmup) = pair, span
    value = schedule(name, {"start": start, "floor": floor, "steps": steps, "warmup": warmup})
    values = [value(version) for version in range(steps)]
    last = start if name == "constant" else floor
    assert values[-1] == value(steps) == value(10**12) == last
    if steps > 1:
        assert values[: min(warmup + 1, steps - 1)] == [start] * min(warmup + 1, steps - 1)
        expected = learning.schedule(name, start, floor, steps, warmup)
        if warmup < steps - 1:
            np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12)
    assert all(one >= other for one, other in pairwise(values)), "never rises"
    assert all(floor <= item <= start for item in values)


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_schedules_by_date_are_those_by_version_and_go_on_after_a_restart(name: str) -> None:
    options = {"start": 0.01, "floor": 0.001, "begin": NEW_YEAR, "end": NEW_YEAR + 40 * DAY}
    value = dated_schedule(name, {**options, "warmup": 10 * DAY})
    by_version = schedule(name, {"start": 0.01, "floor": 0.001, "steps": 41, "warmup": 10})
    for day in range(-3, 50):
        assert value(NEW_YEAR + day * DAY) == pytest.approx(by_version(max(0, day)), abs=1e-15)
    assert value(NEW_YEAR - DAY) == value(NEW_YEAR + 10 * DAY) == 0.01
    assert value(NEW_YEAR + 40 * DAY) == value(1e12) == (0.01 if name == "constant" else 0.001)
    again = dated_schedule(name, {**options, "warmup": 10 * DAY})
    assert [again(NEW_YEAR + day * 7001.7) for day in range(999)] == [
        value(NEW_YEAR + day * 7001.7) for day in range(999)
    ]


def test_a_straight_line_is_one() -> None:
    assert [linear(4.0, 0.0, 5)(version) for version in range(6)] == [4.0, 3.0, 2.0, 1.0, 0.0, 0.0]
    assert schedule("cosine", {"start": 1.0, "floor": 0.5, "steps": 9})(3) == cosine(1.0, 0.5, 9)(3)
    assert schedule("constant", {"start": 0.3, "warmup": 5})(99) == 0.3


FULL = {"start": 1.0, "floor": 0.1, "begin": 0.0, "end": 9.0}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cosinus", {}, "schedule: 'cosinus' is not known; use one of cosine, linear, constant"),
        ("linear", {"start": 1.0}, "schedule.floor: 'linear' has none; give start, floor, steps"),
        ("linear", {"begin": 1.0}, "schedule.begin: 'linear' has no such option"),
        ("cosine", {"start": 1.0, "floor": 2.0, "steps": 3}, "floor: 2.0 is above the start 1.0"),
        ("cosine", {"start": 1.0, "floor": 0.0, "steps": 0}, "steps: 0 is not a length"),
        ("cosine", {"start": 1.0, "floor": 0.0, "steps": 2.5}, "schedule.steps: 2.5 is not a count"),
        ("cosine", {"start": 1.0, "floor": 0.0, "steps": 3, "warmup": 3}, "warmup: 3 does not fit"),
        ("cosine", {"start": "1", "floor": 0.0, "steps": 3}, "schedule.start: '1' is not a number"),
        ("constant", {"start": -1.0}, "start: -1.0 cannot be scheduled"),
        ("constant", {"start": math.inf}, "schedule.start: inf is not a number"),
        ("constant", {"start": True}, "schedule.start: True is not a number"),
    ],
)
def test_schedules_that_make_no_sense_are_refused_by_field_value_and_remedy(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        schedule(name, options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"end": 0.0}, "end: 0.0 is not after the begin 0.0"),
        ({"warmup": 9.0}, "warmup: 9.0 s does not fit into 9.0 s"),
        ({"steps": 9}, "schedule.steps: 'cosine' has no such option"),
    ],
)
def test_dates_that_make_no_sense_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dated_schedule("cosine", {**FULL, **change})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("z-score", {}, "estimator: 'z-score' is not known; use one of zscore, centered-rank"),
        ("zscore", {"prior": 1.0}, "estimator.prior: 'zscore' has no such option; use clip"),
        ("zscore", {"clip": 0}, "clip: 0.0 leaves no weight; use a finite number above 0"),
        ("raw", {"clip": "3"}, "estimator.clip: '3' is not a number"),
        ("group-baseline", {"prior": -1}, "prior: -1.0 is not a number of rewards"),
    ],
)
def test_estimators_that_make_no_sense_are_refused(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        estimator(name, options)


def test_options_arrive() -> None:
    rewards = [EpisodeReward(i, None, value) for i, value in enumerate((0.0, 0.0, 0.0, 0.0, 9.0))]
    assert max(w for _, w in estimator("zscore", {"clip": 1})(rewards).weights) == 1.0
    history = observe(History(), [("g", 4.0), ("h", 0.0)], population=0)
    grouped = [EpisodeReward(0, "g", 4.0), EpisodeReward(1, "h", 0.0), EpisodeReward(2, "h", 1.0)]
    strict = dict(estimator("group-baseline", {"prior": 0}, history)(grouped).weights)
    assert strict[0] == strict[1] < strict[2]
    assert [name for name, choice in ESTIMATORS.items() if choice.uses_history] == ["group-baseline"]
