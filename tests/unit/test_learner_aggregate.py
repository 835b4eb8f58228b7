"""Aggregation and bounds: every rule at its edges."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbed_server.learner import (
    Aggregation,
    Bounds,
    aggregate,
    bounded,
    total_reward,
)

values = st.lists(st.none() | st.floats(-1e3, 1e3), max_size=9)


@settings(deadline=None)
@given(values, st.floats(0.01, 1))
def test_aggregation_is_numpys_and_a_missing_reward_is_missing(
    rewards: list[float | None], discount: float
) -> None:
    array = np.array([np.nan if reward is None else reward for reward in rewards])
    present = array[~np.isnan(array)]
    if not present.size:
        assert all(
            aggregate(rewards, Aggregation(r)) is None for r in ("mean", "sum", "last", "discounted-sum")
        )
        return
    assert aggregate(rewards) == pytest.approx(present.mean(), abs=1e-9)
    assert aggregate(rewards, Aggregation("sum")) == pytest.approx(present.sum(), abs=1e-9)
    assert aggregate(rewards, Aggregation("last")) == present[-1]
    expected = np.nansum(array * discount ** np.arange(array.size))
    assert aggregate(rewards, Aggregation("discounted-sum", discount)) == pytest.approx(expected, abs=1e-9)
    assert total_reward(5.0, rewards) == 5.0
    assert total_reward(None, rewards) == aggregate(rewards)


def test_sums_that_overflow_are_held_at_the_largest_float() -> None:
    largest = math.nextafter(math.inf, 0)
    assert aggregate([1.7e308, 1.7e308], Aggregation("sum")) == largest
    assert aggregate([-1.7e308] * 5, Aggregation("sum")) == -largest
    assert aggregate([1.7e308, 1.7e308, -1.7e308], Aggregation("sum")) == pytest.approx(1.7e308)
    assert math.isfinite(aggregate([1.7e308] * 3) or math.nan)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("median",), "aggregation: 'median' is not known; use one of mean, sum, last, discounted-sum"),
        (("discounted-sum", 0.0), "discount: 0.0 is no discount"),
        (("sum", 0.9), "discount: 0.9 is not used by 'sum'"),
    ],
)
def test_aggregations_that_make_no_sense_are_refused(arguments: tuple[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Aggregation(*arguments)  # type: ignore[arg-type]


def test_bounds_refuse_or_clip_and_never_take_what_is_no_number() -> None:
    assert bounded(7.0) == 7.0
    assert [bounded(x, Bounds(0, 1, clip=True)) for x in (-1.0, 0.0, 0.5, 1.0, 2.0)] == [0, 0, 0.5, 1, 1]
    assert bounded(-5.0, Bounds(high=1)) == -5.0
    with pytest.raises(ValueError, match=r"reward: 1\.5 is outside 0 to 1; post one within the bounds"):
        bounded(1.5, Bounds(0, 1))
    for value in (math.nan, math.inf, -math.inf):
        for bounds in (None, Bounds(0, 1), Bounds(0, 1, clip=True)):
            with pytest.raises(ValueError, match="is not finite; post a number"):
                bounded(value, bounds)
    with pytest.raises(ValueError, match="low: 1 is not below high, 1"):
        Bounds(1, 1)
    with pytest.raises(ValueError, match="high: inf bounds nothing"):
        Bounds(0, math.inf)
