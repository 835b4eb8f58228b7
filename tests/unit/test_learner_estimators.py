"""Each estimator against NumPy, and where each of them has nothing to say."""

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbed_server.learner import (
    ESTIMATORS,
    NO_STEP,
    Estimator,
    History,
    NoStep,
    centered_rank,
    clipped,
    estimator,
    group_baseline,
    group_relative,
    make_step,
    observe,
    open_population,
    raw,
    zscore,
)
from seedbed_server.learner.estimators import EpisodeReward
from seedbed_server.learner.groups import group_means
from seedbed_server.learner.population import reward_episode
from tests.reference import learning

# Apart by more than rounding, as NumPy's plain formulas need them.
grid = st.integers(-40, 40).map(lambda n: n / 8)
tables = st.integers(2, 9).flatmap(
    lambda members: st.integers(1, 4).flatmap(
        lambda episodes: st.lists(
            st.lists(grid, min_size=episodes, max_size=episodes), min_size=members, max_size=members
        )
    )
)
finite = st.floats(allow_nan=False, allow_infinity=False)
ALL = sorted(ESTIMATORS)


def rewards_of(table: Sequence[Sequence[float]], groups: Sequence[str | None] = ()) -> list[EpisodeReward]:
    """One row for each member; the groups are the columns'."""
    return [
        EpisodeReward(member, groups[column] if groups else None, value)
        for member, row in enumerate(table)
        for column, value in enumerate(row)
    ]


def weights_of(estimate: Estimator, rewards: Sequence[EpisodeReward]) -> np.ndarray | None:
    found = estimate(rewards)
    assert (found.reason is None) == bool(found.weights)
    return np.array([weight for _, weight in found.weights]) if found.weights else None


@settings(deadline=None)
@given(tables)
def test_zscore_rank_and_raw_are_numpys(table: list[list[float]]) -> None:
    array, rewards = np.array(table), rewards_of(table)
    spread = array.mean(axis=1).std()
    for ours, theirs in (
        (zscore, learning.zscore),
        (centered_rank, learning.centered_rank),
        (raw, learning.raw),
    ):
        weights = weights_of(ours, rewards)
        if weights is None:
            assert spread < 1e-11
        elif spread > 1e-11:
            np.testing.assert_allclose(weights, theirs(array), rtol=1e-9, atol=1e-9)


@settings(deadline=None)
@given(tables)
def test_group_relative_is_numpys(table: list[list[float]]) -> None:
    groups = ["a", "b", "a", "c"][: len(table[0])]
    array, labels = np.array(table), np.array([groups] * len(table))
    weights = weights_of(group_relative, rewards_of(table, groups))
    if weights is not None and np.array(table).mean(axis=1).std() > 1e-9:
        np.testing.assert_allclose(weights, learning.group_relative(array, labels), rtol=1e-9, atol=1e-9)


@settings(deadline=None)
@given(tables, st.dictionaries(st.sampled_from("abcd"), st.lists(grid, min_size=1, max_size=9)))
def test_group_baseline_is_numpys(table: list[list[float]], before: dict[str, list[float]]) -> None:
    groups = ["a", "b", "a", "c"][: len(table[0])]
    past = learning.PastRewards({name: list(values) for name, values in before.items()})
    history = observe(History(), [(n, v) for n, values in before.items() for v in values], population=0)
    weights = weights_of(group_baseline(history, prior=2.0), rewards_of(table, groups))
    if weights is not None and np.array(table).mean(axis=1).std() > 1e-9:
        expected = past.weights(np.array(table), np.array([groups] * len(table)), prior=2.0)
        np.testing.assert_allclose(weights, expected, rtol=1e-7, atol=1e-7)


@settings(deadline=None)
@given(tables)
def test_one_group_and_no_history_are_the_zscore(table: list[list[float]]) -> None:
    plain = weights_of(zscore, rewards_of(table))
    for other in (group_relative, group_baseline(History())):
        weights = weights_of(other, rewards_of(table, ["g"] * 4))
        assert (weights is None) == (plain is None)
        if plain is not None and weights is not None:
            np.testing.assert_allclose(weights, plain, rtol=1e-9, atol=1e-9)


def test_difficulty_is_taken_for_skill_by_zscore_and_not_by_a_baseline() -> None:
    skill, difficulty = [1.0, 0.0, 0.5, 0.2], {"easy": 0.0, "hard": -10.0}
    rewards = [
        EpisodeReward(i, group, value + difficulty[group])
        for i, (value, group) in enumerate(zip(skill, ("hard", "easy", "hard", "easy"), strict=True))
    ]
    history = observe(History(), [(g, 0.4 + d) for g, d in difficulty.items()] * 500, population=0)
    plain, weights = weights_of(zscore, rewards), weights_of(group_baseline(history), rewards)
    assert plain is not None
    assert np.argmax(plain) == 3
    assert weights is not None
    assert list(np.argsort(weights)) == list(np.argsort(skill))


def test_a_member_with_many_episodes_in_a_group_counts_once_in_its_mean() -> None:
    rewards = [EpisodeReward(0, "g", 0.0), EpisodeReward(0, "g", 0.0), EpisodeReward(0, "g", 0.0)]
    rewards.append(EpisodeReward(1, "g", 1.0))
    assert group_means(rewards) == {"g": 0.5}
    assert dict(group_relative(rewards).weights) == {0: -1.0, 1: 1.0}


def test_a_member_alone_in_its_group_has_no_weight_and_only_such_make_no_step() -> None:
    rewards = [EpisodeReward(0, "a", 1.0), EpisodeReward(1, "a", 2.0), EpisodeReward(2, "b", 99.0)]
    assert dict(group_relative(rewards).weights)[2] == 0
    alone = [EpisodeReward(i, f"g{i}", float(i)) for i in range(4)]
    assert group_relative(alone).reason == "no_common_group"
    assert zscore(alone).reason is None


@pytest.mark.parametrize("name", ALL)
def test_nothing_one_survivor_and_no_spread_are_reasons_of_every_estimator(name: str) -> None:
    estimate = estimator(name)
    assert estimate([]).reason == "no_rewards"
    assert estimate([EpisodeReward(3, "g", 1.0), EpisodeReward(3, "g", 2.0)]).reason == "one_survivor"
    for value in (0.0, 0.1, -3e300, 5e-324):
        assert estimate([EpisodeReward(i, "g", value) for i in range(7)]).reason == "no_spread"


@pytest.mark.parametrize("name", ALL)
@settings(deadline=None)
@given(values=st.lists(st.tuples(finite, st.sampled_from(["a", "b", None])), max_size=9))
def test_every_finite_reward_gives_finite_weights_or_a_known_reason(
    name: str, values: list[tuple[float, str | None]]
) -> None:
    history = observe(History(), [("a", 1.7e308), ("b", -1.7e308), (None, 3.0)], population=0)
    estimate = estimator(name, history=history)(
        [EpisodeReward(i // 2, group, value) for i, (value, group) in enumerate(values)]
    )
    assert all(math.isfinite(weight) for _, weight in estimate.weights)
    assert estimate.reason is None or estimate.reason in NO_STEP
    population = open_population(
        number=0, version=0, sigma=0.01, size=5, episodes_per_member=1, mirrored=False, run_seed=0
    )
    for i, (value, group) in enumerate(values):
        population = reward_episode(population, i // 2, str(i), group, value)
    step = make_step(population, estimator(name, history=history), 1e-3)
    assert not isinstance(step, NoStep) or step.reason in NO_STEP


@pytest.mark.parametrize("name", ALL)
def test_the_order_of_rewards_changes_no_bit(name: str) -> None:
    values = ((0.1, "a"), (7.3, "b"), (0.7, "a"), (-1e9, None), (0.3, "b"), (0.1, "a"))
    rewards = [EpisodeReward(i % 3, group, value) for i, (value, group) in enumerate(values)]
    history = observe(History(), [("a", 0.3), ("b", 5.0)], population=0)
    assert len({estimator(name, history=history)(order) for order in permutations(rewards)}) == 1


@settings(deadline=None)
@given(st.lists(st.tuples(grid, st.sampled_from([0.25, 0.5, 1.0])), min_size=2, max_size=9))
def test_weights_of_stale_members_are_those_of_a_weighted_mean(values: list[tuple[float, float]]) -> None:
    rewards = [EpisodeReward(i, None, value, weight) for i, (value, weight) in enumerate(values)]
    weights = weights_of(zscore, rewards)
    if weights is not None:
        expected = learning.weighted_zscore(*(np.array(column) for column in zip(*values, strict=True)))
        np.testing.assert_allclose(weights, expected, rtol=1e-9, atol=1e-9)
        assert abs(weights.sum()) < 1e-9
    ranks = weights_of(centered_rank, rewards)
    assert ranks is None or abs(ranks.sum()) < 1e-9


@settings(deadline=None)
@given(tables, st.floats(0.1, 3))
def test_clipping_holds_every_weight_after_normalisation(table: list[list[float]], limit: float) -> None:
    rewards = rewards_of(table)
    plain, held = weights_of(zscore, rewards), weights_of(clipped(zscore, limit), rewards)
    if plain is not None and held is not None:
        np.testing.assert_array_equal(held, np.clip(plain, -limit, limit))


def test_rewards_that_float32_cannot_hold_make_no_raw_step() -> None:
    for scale in (1e35, 1e-35):
        assert raw([EpisodeReward(i, None, i * scale) for i in range(3)]).reason == "out_of_range"
