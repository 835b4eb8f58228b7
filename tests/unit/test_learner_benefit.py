"""What a direction is worth: against populations whose truth is known."""

import math

import numpy as np
import pytest

from seedbed_server.learner import Estimate, benefit, estimator, zscore
from seedbed_server.learner.benefit import Scatter, scatter_of_controls, scatter_within
from seedbed_server.learner.estimators import EpisodeReward


def drawn(
    generator: np.random.Generator, signal: float, luck: float, members: int, episodes: int
) -> tuple[np.ndarray, list[EpisodeReward]]:
    truth = generator.normal(0, signal, members) if signal else np.zeros(members)
    rewards = truth[:, None] + generator.normal(0, luck, (members, episodes))
    return truth, [EpisodeReward(i, None, float(value)) for i, row in enumerate(rewards) for value in row]


@pytest.mark.parametrize("name", ["zscore", "centered-rank", "raw"])
@pytest.mark.parametrize(("signal", "luck"), [(0.0, 1.0), (0.5, 1.0), (1.0, 0.5)])
def test_the_benefit_is_right_on_average_and_within_its_error(name: str, signal: float, luck: float) -> None:
    generator, estimate = np.random.default_rng(7), estimator(name)
    errors, pulls = [], []
    for _ in range(300):
        truth, rewards = drawn(generator, signal, luck, members=16, episodes=4)
        found = estimate(rewards)
        weights = np.array([weight for _, weight in found.weights])
        value = benefit(rewards, found, scatter_within(rewards))
        assert value is not None
        gained = float((weights * (truth - truth.mean())).mean())
        errors.append(value.value - gained)
        pulls.append((value.value - gained) / value.error)
    scale = 1.0 if name != "raw" else signal + luck
    assert abs(np.mean(errors)) < 0.05 * scale
    # A standard error covers about two thirds, and twice of it about all.
    assert 0.5 < np.mean(np.abs(pulls) < 1) < 0.95
    assert np.mean(np.abs(pulls) < 2) > 0.88


def test_controls_stand_in_where_every_member_has_one_episode() -> None:
    generator = np.random.default_rng(8)
    values = []
    for _ in range(300):
        _, rewards = drawn(generator, 0.0, 1.0, members=16, episodes=1)
        assert scatter_within(rewards) is None
        assert benefit(rewards, zscore(rewards), None) is None
        value = benefit(rewards, zscore(rewards), scatter_of_controls(list(generator.normal(0, 1, 200))))
        assert value is not None
        values.append(value.value)
    # The spread of pure luck is 1; its benefit is none.
    assert abs(np.mean(values)) < 0.05


def test_scatter_is_the_pooled_variance() -> None:
    rows = [[1.0, 2.0, 4.0], [0.0, 5.0, 1.0]]
    rewards = [EpisodeReward(i, None, value) for i, row in enumerate(rows) for value in row]
    rewards.append(EpisodeReward(2, None, 99.0))
    found = scatter_within(rewards)
    assert found is not None
    assert found.degrees == 4
    assert found.variance == pytest.approx(np.var(rows, axis=1, ddof=1).mean())
    control = scatter_of_controls([1.0, 2.0, 4.0])
    assert control is not None
    assert control.degrees == 2
    assert control.variance == pytest.approx(np.var([1.0, 2.0, 4.0], ddof=1))
    assert scatter_of_controls([1.0]) is None


def test_without_luck_the_benefit_is_the_spread_and_certain() -> None:
    rewards = [EpisodeReward(i, None, float(i)) for i in range(8) for _ in range(2)]
    value = benefit(rewards, zscore(rewards), scatter_within(rewards))
    assert value is not None
    assert value.value == pytest.approx(np.arange(8).std())
    assert (value.error, value.reliability) == (0.0, 1.0)


def test_what_cannot_be_known_is_none() -> None:
    rewards = [EpisodeReward(i, None, float(i)) for i in range(3) for _ in range(2)]
    scatter = Scatter(1.0, 10)
    assert benefit(rewards, zscore(rewards), scatter) is None, "fewer than four members"
    assert benefit(rewards, Estimate((), "no_spread"), scatter) is None
    huge = [EpisodeReward(i, None, (-1) ** i * 1e300) for i in range(6)]
    found = benefit(huge, zscore(huge), scatter)
    assert found is None or math.isfinite(found.value)
