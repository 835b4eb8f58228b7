"""What becomes of a reward."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed_server.learner import Given, Known, Target, judge
from seedbed_server.learner.rewards import episode_reward

OPEN = Target("ep", None, 3, population_open=True)
CLOSED = Target("ep", None, 3, population_open=False)
LIVE = Target("ep", None, None, population_open=False)


def post(value: float = 1.0, reward_id: str | None = None) -> Given:
    return Given("ep", None, value, reward_id)


def test_a_first_reward_is_accepted_and_counts() -> None:
    verdict = judge(post(), OPEN, None, None)
    assert (verdict.result, verdict.store, verdict.counts) == ("accepted", True, True)


def test_a_reward_for_an_unknown_id_is_kept_nowhere_and_the_message_names_the_id() -> None:
    verdict = judge(post(), None, None, None)
    assert (verdict.result, verdict.store, verdict.counts) == ("unknown", False, False)
    assert "'ep'" in verdict.message


@pytest.mark.parametrize("target", [OPEN, CLOSED, LIVE])
def test_the_same_reward_id_with_the_same_value_is_a_duplicate_at_any_time(target: Target) -> None:
    verdict = judge(post(1.0, "r"), target, Known("ep", None, 1.0), Known("ep", None, 1.0))
    assert (verdict.result, verdict.store) == ("duplicate", False)


@pytest.mark.parametrize("target", [OPEN, CLOSED, LIVE])
@pytest.mark.parametrize("known", [Known("ep", None, 2.0), Known("other", None, 1.0), Known("ep", "c", 1.0)])
def test_the_same_reward_id_with_another_value_or_target_is_a_conflict(target: Target, known: Known) -> None:
    verdict = judge(post(1.0, "r"), target, known, None)
    assert (verdict.result, verdict.store, verdict.counts) == ("conflict", False, False)
    assert "'r'" in verdict.message


@pytest.mark.parametrize("reward_id", [None, "second"])
def test_a_second_reward_replaces_the_first_while_the_population_is_open(reward_id: str | None) -> None:
    verdict = judge(post(2.0, reward_id), OPEN, None, Known("ep", None, 1.0))
    assert (verdict.result, verdict.store, verdict.counts) == ("replaced", True, True)


def test_a_reward_after_the_population_closed_is_late_kept_and_not_used() -> None:
    for current in (None, Known("ep", None, 1.0)):
        verdict = judge(post(2.0), CLOSED, None, current)
        assert (verdict.result, verdict.store, verdict.counts) == ("late", True, False)


def test_a_reward_for_the_live_model_is_kept_as_a_control() -> None:
    verdict = judge(post(), LIVE, None, None)
    assert (verdict.result, verdict.store) == ("accepted", True)
    assert "control" in verdict.message


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.floats(-1e300, 1e300), max_size=3))
def test_an_episodes_reward_is_its_own_or_the_mean_over_its_completions_and_never_0_for_none(
    by_completion: dict[str | None, float],
) -> None:
    total = episode_reward(by_completion)
    if not by_completion:
        assert total is None
    else:
        assert total is not None
        assert min(by_completion.values()) - 1e290 <= total <= max(by_completion.values()) + 1e290
    assert episode_reward({**by_completion, None: 5.0}) == 5.0
