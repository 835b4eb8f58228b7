"""The guards: false alarms by simulation, drops that are seen, steps and figures against their limits."""

import math
from dataclasses import replace

import numpy as np
import pytest

from seedbed_server.learner import (
    Control,
    DropRules,
    Limits,
    Statistics,
    Step,
    Traffic,
    expected_rms,
    limit_step,
    make_step,
    observe_control,
    open_population,
    verdict,
    watch,
    zscore,
)
from seedbed_server.learner.drop import Alarm, Best, from_json, restart, to_json
from seedbed_server.learner.population import reward_episode
from seedbed_server.learner.watch import dropped_shares, expected_norm, rewards_by_duration
from tests.reference import noise

RULES = DropRules(bound=0.02, run_length=1000, block=50, error=0.05)


def feed(control: Control, rewards: np.ndarray, rules: DropRules = RULES) -> tuple[Control, int | None]:
    """The guard after these rewards or at its first alarm, and after how many that came; 5 to a version."""
    for index, reward in enumerate(rewards):
        control = observe_control(control, rules, float(reward), (control.seen) // 5)
        if verdict(control, rules) is not None:
            return control, index + 1
    return control, None


def known(lower: float) -> Control:
    """A guard that knows its best version exactly: what is left is the sequential test alone."""
    return Control(best=Best(0, 0, lower, lower))


def test_false_alarms_are_no_more_frequent_than_promised() -> None:
    """The hardest case within the null: every control has exactly the expectation that is just tolerated."""
    generator = np.random.default_rng(3)
    horizon, trials, rules = 300, 300, DropRules(bound=0.0, run_length=1000, block=10**6)
    for draw in (
        lambda: generator.binomial(1, 0.5, horizon),
        lambda: generator.beta(0.5, 4.5, horizon) * 0.5 / 0.1 * 0.2 + 0.4,  # skewed, mean 0.5
        lambda: np.full(horizon, 0.5),
    ):
        alarms = sum(feed(known(0.5), draw(), rules)[1] is not None for _ in range(trials))
        # P <= 300/1000; far below in fact: the bound is for the worst of all distributions.
        assert alarms / trials <= 0.3


def test_the_whole_guard_with_an_estimated_best_rarely_alarms_on_a_model_that_stays() -> None:
    generator = np.random.default_rng(4)
    alarms = [feed(Control(), generator.binomial(1, 0.6, 1000))[1] for _ in range(100)]
    assert sum(alarm is not None for alarm in alarms) <= 5


def test_a_drop_is_seen_and_the_best_version_is_named() -> None:
    generator = np.random.default_rng(5)
    control, alarm = feed(Control(), generator.binomial(1, 0.8, 400))
    assert alarm is None
    control, alarm = feed(control, generator.binomial(1, 0.3, 400))
    assert alarm is not None
    assert alarm < 150
    found = verdict(control, RULES)
    assert isinstance(found, Alarm)
    assert found.best.last_version < 90
    assert found.evidence >= RULES.run_length
    assert "earns less than" in found.message
    assert from_json(to_json(control)) == control
    with pytest.raises(ValueError, match="control: not what the guard knew"):
        from_json(to_json(control).replace("evidence", "evident"))
    again = restart(control)
    assert verdict(again, RULES) is None
    assert again.best == control.best


def test_a_long_good_time_does_not_make_the_guard_slow() -> None:
    generator = np.random.default_rng(6)
    control, _ = feed(Control(), generator.binomial(1, 0.9, 3000))
    _, alarm = feed(control, generator.binomial(1, 0.3, 300))
    assert alarm is not None
    assert alarm < 120


def test_the_lower_bound_of_the_best_is_hoeffdings() -> None:
    control, _ = feed(Control(), np.array([0.0, 1.0] * 25))
    assert control.best is not None
    assert control.best.mean == 0.5
    allowed = 0.05 * 6 / math.pi**2
    assert control.best.lower == pytest.approx(0.5 - math.sqrt(math.log(1 / allowed) / 100))
    total = sum(0.05 * 6 / (math.pi * k) ** 2 for k in range(1, 200_000))
    assert total == pytest.approx(0.05, rel=1e-4)


def test_rewards_outside_the_bounds_are_held_and_a_guard_that_cannot_fall_never_alarms() -> None:
    rules = DropRules(low=-1, high=1, bound=0.1, block=10)
    control, alarm = feed(Control(), np.full(50, -7.0), rules)
    assert alarm is None
    assert control.best is not None
    assert control.best.mean == -1
    with pytest.raises(ValueError, match="reward: nan is not finite"):
        observe_control(control, rules, math.nan, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"low": 1.0}, "guard.low, guard.high: 1.0 and 1.0"),
        ({"bound": 1.0}, "guard.bound: 1.0"),
        ({"run_length": 1.0}, "guard.run_length: 1.0"),
        ({"block": 1}, "guard.block: 1"),
        ({"error": 0.0}, "guard.error: 0.0"),
    ],
)
def test_rules_under_which_the_test_means_nothing_are_refused(
    arguments: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        DropRules(**arguments)  # type: ignore[arg-type]


# -- steps -------------------------------------------------------------------------------------------


def step_of(size: int = 16, alpha: float = 0.01, rank: int = 1, number: int = 0) -> Step:
    population = open_population(
        number=number, version=0, sigma=0.01, size=size, episodes_per_member=1, mirrored=False, run_seed=2
    )
    for member in range(size):
        population = reward_episode(population, member, f"{member}", None, math.sin(member))
    step = make_step(population, zscore, alpha, rank)
    assert isinstance(step, Step)
    return step


def test_the_expected_size_of_a_zscore_step_is_alpha_over_root_n() -> None:
    for size, rank in ((4, 1), (16, 2), (64, 1)):
        assert expected_rms(step_of(size, rank=rank)) == pytest.approx(0.01 / math.sqrt(size), rel=0.02)
    assert expected_norm(step_of(16), 10_000) == pytest.approx(0.01 / 4 * 100, rel=0.02)


def test_the_expected_size_is_the_size_with_the_real_noise() -> None:
    squares, shape = [], (40, 30)
    for number in range(60):
        step = step_of(number=number)
        update = noise.Update(1, step.seeds, step.coefficients, step.matrix_multiplier, 0.0)
        moved = step.matrix_multiplier * noise.integer_sum("w.weight", "matrix", shape, update)
        squares.append(float((moved**2).mean()))
    assert math.sqrt(np.mean(squares)) == pytest.approx(expected_rms(step), rel=0.05)


def test_a_step_above_the_bound_is_made_shorter_in_its_direction() -> None:
    step = step_of()
    size = expected_rms(step)
    assert limit_step(step, size * 1.01) is step
    short = limit_step(step, size / 4)
    assert expected_rms(short) == pytest.approx(size / 4, rel=1e-6)
    assert (short.seeds, short.coefficients, short.scale) == (step.seeds, step.coefficients, step.scale)
    assert short.alpha == pytest.approx(step.alpha / 4)
    assert short.matrix_multiplier == float(np.float32(step.matrix_multiplier / 4))
    decaying = replace(step, decay=0.5)
    assert limit_step(decaying, size / 4).decay == pytest.approx(0.125)
    for bound in (0.0, math.inf, 1e-80):
        with pytest.raises(ValueError, match="step_bound: "):
            limit_step(step, bound)


# -- figures -----------------------------------------------------------------------------------------


def test_figures_beyond_their_limits_are_findings_with_a_remedy() -> None:
    scores = Statistics(0.5, 1e-4, 0.4, 0.6, 0, 16, 16)
    limits = Limits(least_spread=1e-3, most_dropped=0.25, most_truncated=0.5)
    traffic = Traffic(episodes=20, dropped=6, completions=10, truncated=6)
    found = watch(scores, traffic, limits)
    assert [(item.code, item.value, item.limit) for item in found] == [
        ("low_spread", 1e-4, 1e-3),
        ("many_dropped", 0.3, 0.25),
        ("many_truncated", 0.6, 0.5),
    ]
    assert found[1].message.startswith("episodes without a reward: 30%, above 25%; long episodes go first")
    assert watch(scores, traffic, Limits()) == ()
    assert watch(None, Traffic(), limits) == (), "missing is missing"
    assert watch(scores, Traffic(20, 5, 10, 5), Limits(1e-4, 0.25, 0.5)) == (), "a limit is allowed"


def test_dropped_shares_are_by_member() -> None:
    shares = dropped_shares([(2, True), (0, False), (2, False), (0, False), (2, True)])
    assert shares == ((0, 0.0), (2, 2 / 3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"least_spread": -1.0}, "least_spread: -1.0"),
        ({"most_dropped": 1.5}, "most_dropped: 1.5"),
        ({"most_truncated": math.nan}, "most_truncated: nan"),
    ],
)
def test_limits_that_cannot_be_reached_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Limits(**arguments)


def test_rewards_by_duration_are_means_of_equal_parts_in_the_order_of_time() -> None:
    episodes = [(float(seconds), seconds / 10) for seconds in range(10)]
    np.random.default_rng(0).shuffle(episodes)
    parts = rewards_by_duration(episodes)
    assert [part.episodes for part in parts] == [2, 3, 2, 3]
    assert [part.longest for part in parts] == [1.0, 4.0, 6.0, 9.0]
    assert [part.reward_mean for part in parts] == pytest.approx([0.05, 0.3, 0.55, 0.8])
    assert rewards_by_duration(episodes[:3]) == ()
