"""The learner against a plain NumPy twin, and the ends of everything that has an end."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed_server.learner import (
    NoStep,
    Population,
    Step,
    constant,
    cosine,
    derive_seed,
    lease,
    make_step,
    open_population,
    statistics,
    zscore,
)
from seedbed_server.learner.estimators import EpisodeReward
from seedbed_server.learner.population import (
    complete_members,
    episode_rewards,
    is_complete,
    release,
    reward_episode,
    waiting_for,
)
from seedbed_server.learner.step import fl32, quantise

finite = st.floats(allow_nan=False, allow_infinity=False, width=64)


def population(size: int = 4, *, mirrored: bool = False, episodes: int = 1, number: int = 0) -> Population:
    return open_population(
        number=number,
        version=number,
        sigma=0.01,
        size=size,
        episodes_per_member=episodes,
        mirrored=mirrored,
        run_seed=7,
    )


def rewarded(start: Population, values: list[float]) -> Population:
    for member, value in enumerate(values):
        start = reward_episode(start, member, f"e{member}", None, value)
    return start


# -- seeds -------------------------------------------------------------------------------------------


def test_seeds_are_repeatable_distinct_and_64_bits_wide() -> None:
    seeds = {derive_seed(3, number, index) for number in range(20) for index in range(20)}
    assert len(seeds) == 400
    assert max(seeds) > 2**63
    assert all(0 <= seed < 2**64 for seed in seeds)
    # A frozen value: a changed derivation would make every old run unrepeatable.
    assert derive_seed(0, 0, 0) == int.from_bytes(
        __import__("hashlib").blake2b(bytes(24), digest_size=8).digest(), "little"
    )


def test_a_run_seed_of_2_to_the_64_is_refused_with_its_remedy() -> None:
    with pytest.raises(ValueError, match=r"run_seed: 18446744073709551616 .* unsigned 64-bit"):
        derive_seed(2**64, 0, 0)


# -- populations -------------------------------------------------------------------------------------


def test_mirrored_members_share_a_seed_with_opposite_signs() -> None:
    members = population(6, mirrored=True).members
    for plus, minus in zip(members[::2], members[1::2], strict=True):
        assert (plus.seed, plus.sign, minus.sign) == (minus.seed, 1, -1)
    assert len({member.seed for member in members}) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 1}, "population_size: 1"),
        ({"size": 3, "mirrored": True}, "population_size: 3 is odd"),
        ({"episodes_per_member": 0}, "episodes_per_member: 0"),
        ({"sigma": 0.0}, "sigma: 0.0"),
        ({"sigma": math.nan}, "sigma: nan"),
    ],
)
def test_a_population_that_cannot_learn_is_refused(change: dict[str, float], message: str) -> None:
    values: dict[str, object] = {
        "number": 0, "version": 0, "sigma": 1e-3, "size": 4, "episodes_per_member": 1, "mirrored": False,
        "run_seed": 0,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        open_population(**(values | change))  # type: ignore[arg-type]


def test_leases_go_round_all_members_before_one_comes_again() -> None:
    current, seen = population(5), []
    for _ in range(10):
        current, member = lease(current, None)
        seen.append(member.index)
    assert seen == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]


@given(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=80), st.integers(2, 7))
def test_leases_are_balanced_within_every_group(groups: list[str | None], size: int) -> None:
    current = population(size)
    counts: dict[str, list[int]] = {}
    for group in groups:
        current, member = lease(current, group)
        if group is not None:
            counts.setdefault(group, [0] * size)[member.index] += 1
    assert all(max(per_member) - min(per_member) <= 1 for per_member in counts.values())
    assert sum(tally.episodes for tally in current.tallies) == len(groups)


def test_an_episode_that_is_given_back_frees_its_member() -> None:
    current, member = lease(population(3), "g")
    assert member.index == 0
    assert lease(release(current, 0, "g"), "g")[1].index == 0


def test_a_population_is_complete_when_every_member_has_its_rewards_and_says_what_is_missing() -> None:
    current = population(2, episodes=2)
    assert waiting_for(current) == "4 rewards for members 0, 1"
    for member, episode in ((0, "a"), (0, "b"), (1, "c")):
        current = reward_episode(current, member, episode, None, 1.0)
    assert (complete_members(current), is_complete(current)) == (1, False)
    assert waiting_for(current) == "1 reward for member 1"
    current = reward_episode(current, 1, "c", None, 2.0)
    assert not is_complete(current), "a replaced reward is one reward"
    current = reward_episode(current, 1, "d", None, 2.0)
    assert is_complete(current)
    assert "every member" in waiting_for(current)


# -- estimators --------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=32))
def test_zscore_is_numpys_with_ddof_0(values: list[float]) -> None:
    array = np.array(values)
    estimate = zscore([EpisodeReward(i, None, v) for i, v in enumerate(values)])
    if estimate.reason is not None:
        assert array.std() <= 1e-10 * max(1e-300, np.abs(array).max()) * 10
        return
    weights = np.array([w for _, w in estimate.weights])
    if array.std() > 1e-6 * np.abs(array).max():
        expected = (array - array.mean()) / array.std()
        np.testing.assert_allclose(weights, expected, rtol=1e-8, atol=1e-8)
    assert abs(weights.mean()) < 1e-6
    assert abs(weights.std() - 1) < 1e-6


@pytest.mark.parametrize("value", [0.0, 0.1, -3e300, 5e-324])
def test_members_that_did_equally_well_give_a_reason_and_no_step(value: float) -> None:
    assert zscore([EpisodeReward(i, None, value) for i in range(16)]).reason == "no_spread"
    assert make_step(rewarded(population(), [value] * 4), zscore, 0.1) == NoStep("no_spread")


def test_the_rounding_of_means_is_not_taken_for_a_spread() -> None:
    rewards = [EpisodeReward(0, None, v) for v in (0.1, 0.2)] + [
        EpisodeReward(1, None, v) for v in (0.3, 0.0)
    ]
    assert zscore(rewards).reason == "no_spread"


@given(st.lists(st.floats(-1e308, 1e308), min_size=2, max_size=8))
def test_weights_are_finite_for_every_finite_reward(values: list[float]) -> None:
    estimate = zscore([EpisodeReward(i, None, v) for i, v in enumerate(values)])
    assert all(math.isfinite(weight) for _, weight in estimate.weights)
    scores = statistics([EpisodeReward(i, None, v) for i, v in enumerate(values)])
    assert scores is not None
    assert all(math.isfinite(v) for v in (scores.mean, scores.spread))


def test_the_order_of_episodes_changes_no_bit() -> None:
    rewards = [EpisodeReward(i % 2, None, v) for i, v in enumerate((0.1, 1e16, 0.7, -1e16, 0.3))]
    assert len({zscore(order) for order in permutations(rewards)}) == 1


def test_statistics_are_of_raw_rewards_over_members() -> None:
    rewards = [EpisodeReward(0, None, 1.0), EpisodeReward(0, None, 3.0), EpisodeReward(1, None, 4.0)]
    scores = statistics(rewards)
    assert scores is not None
    assert (scores.mean, scores.spread, scores.minimum, scores.maximum) == (3.0, 1.0, 2.0, 4.0)
    assert (scores.best_member, scores.members, scores.episodes) == (1, 2, 3)
    assert statistics([]) is None, "no rewards have no mean"


# -- schedules ---------------------------------------------------------------------------------------


def test_cosine_starts_at_its_start_and_its_last_step_is_exactly_the_floor() -> None:
    schedule = cosine(1e-2, 1e-3, steps=50)
    assert schedule(0) == 1e-2
    assert schedule(49) == 1e-3
    assert schedule(50) == schedule(10**9) == 1e-3
    values = [schedule(version) for version in range(50)]
    assert values == sorted(values, reverse=True)
    assert schedule(24) + schedule(25) == pytest.approx(1e-2 + 1e-3)


def test_warm_up_holds_the_start() -> None:
    schedule = cosine(1.0, 0.0, steps=10, warmup=4)
    assert [schedule(version) for version in range(5)] == [1.0] * 5
    assert schedule(5) < 1.0
    assert schedule(9) == 0.0


def test_constant_is_constant() -> None:
    assert {constant(0.3)(version) for version in range(100)} == {0.3}


@pytest.mark.parametrize(
    "arguments",
    [(1.0, 2.0, 10, 0), (1.0, 0.1, 0, 0), (1.0, 0.1, 5, 5), (math.inf, 0.1, 5, 0), (1.0, -0.1, 5, 0)],
)
def test_schedules_that_make_no_sense_are_refused(arguments: tuple[float, float, int, int]) -> None:
    with pytest.raises(ValueError, match=": "):
        cosine(*arguments)


# -- quantisation and steps --------------------------------------------------------------------------


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=64))
def test_quantisation_is_within_half_a_scale_and_uses_the_whole_range(values: list[float]) -> None:
    quantised = quantise(values)
    if quantised is None:
        assert max(abs(v) for v in values) < 1e-40
        return
    codes, scale = quantised
    assert scale == float(np.float32(scale))
    assert max(abs(code) for code in codes) == 127 or max(abs(v) for v in values) < 1e-36
    for value, code in zip(values, codes, strict=True):
        assert -127 <= code <= 127
        assert abs(code * scale - value) <= scale * (0.5 + 127 * 2**-23)


def test_multipliers_are_the_formula_rounded_once_to_float32() -> None:
    step = make_step(rewarded(population(4), [1.0, 2.0, 3.0, 5.0]), zscore, 0.02, rank=2)
    assert isinstance(step, Step)
    array = np.array([1.0, 2.0, 3.0, 5.0])
    weights = (array - array.mean()) / array.std()
    assert step.scale == float(np.float32(np.abs(weights).max() / 127))
    assert step.coefficients == tuple(np.rint(weights / step.scale).astype(int))
    assert step.matrix_multiplier == float(np.float32(0.02 * step.scale / (4 * 8 * math.sqrt(2))))
    assert step.vector_multiplier == float(np.float32(0.02 * step.scale / (4 * math.sqrt(8))))
    assert step.members == 4


@given(st.floats(-1e40, 1e40))
def test_fl32_is_numpys_float32(value: float) -> None:
    with np.errstate(over="ignore"):
        assert fl32(value) == float(np.float32(value))


def test_a_mirrored_pair_becomes_one_coefficient_of_its_difference() -> None:
    current = rewarded(population(4, mirrored=True), [3.0, 1.0, 2.0, 2.0])
    step = make_step(current, zscore, 0.1)
    assert isinstance(step, Step)
    assert step.seeds == (current.members[0].seed, current.members[2].seed)
    assert step.coefficients == (127, 0)


def test_mirrored_pairs_that_agree_give_no_direction() -> None:
    assert make_step(rewarded(population(4, mirrored=True), [1.0, 1.0, 2.0, 2.0]), zscore, 0.1) == NoStep(
        "no_direction"
    )


def test_an_alpha_of_0_explores_without_a_step() -> None:
    assert make_step(rewarded(population(), [1.0, 2.0, 3.0, 4.0]), zscore, 0.0) == NoStep("no_alpha")


def test_only_members_with_rewards_count_as_n() -> None:
    current = reward_episode(reward_episode(population(4), 0, "a", None, 1.0), 2, "b", None, 2.0)
    step = make_step(current, zscore, 0.1)
    assert isinstance(step, Step)
    assert step.members == 2
    assert step.seeds == (current.members[0].seed, current.members[2].seed)


@pytest.mark.parametrize("mirrored", [False, True])
def test_the_learner_optimises_a_quadratic_step_by_step_like_a_plain_numpy_twin(mirrored: bool) -> None:
    """theta in R^(6 x 5), reward -||theta - goal||^2; the twin works with whole matrices."""
    generator = np.random.default_rng(0)
    goal = generator.normal(size=(6, 5))
    theta, twin = np.zeros((6, 5)), np.zeros((6, 5))
    sigma, alpha, size, steps = cosine(0.1, 0.02, 300), cosine(0.35, 0.0, 300), 16, 300

    def direction(seed: int) -> np.ndarray:
        noise = np.random.default_rng(seed)
        a, b = (noise.binomial(32, 0.5, n) - 16 for n in (6, 5))
        return np.outer(a, b)  # integers; the real value is this over 8

    def reward(weights: np.ndarray) -> float:
        return -float(((weights - goal) ** 2).sum())

    start = reward(theta)
    for version in range(steps):
        current = open_population(
            number=version, version=version, sigma=sigma(version), size=size, episodes_per_member=1,
            mirrored=mirrored, run_seed=1,
        )  # fmt: skip
        rewards = []
        for _ in range(size):
            current, member = lease(current, None)
            offset = member.sign * current.sigma * direction(member.seed) / 8
            rewards.append(reward(theta + offset))
            current = reward_episode(current, member.index, f"{member.index}", None, rewards[-1])
        assert len(episode_rewards(current)) == size
        step = make_step(current, zscore, alpha(version))
        if isinstance(step, NoStep):
            assert alpha(version) == 0
            continue
        exact = sum(c * direction(s) for s, c in zip(step.seeds, step.coefficients, strict=True))
        theta = theta + step.matrix_multiplier * exact

        z = (np.array(rewards) - np.mean(rewards)) / np.std(rewards)
        move = sum(
            z[m.index] * m.sign * direction(m.seed) / 8 for m in current.members
        )  # before any quantisation
        twin = twin + alpha(version) / size * move
        half = 0.5 * step.scale * sum(np.abs(direction(s)) / 8 for s in step.seeds) * alpha(version) / size
        assert (np.abs(theta - twin) <= half + 1e-6).all()
        twin = theta.copy()
    assert reward(theta) > 0.02 * start
