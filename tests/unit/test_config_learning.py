"""Settings of learning: what fits together, and what a contradiction is answered with."""

from typing import Any

import pytest

from seedbed_server.config import SettingsError, load_settings
from seedbed_server.gateway.plan import plan_from
from seedbed_server.learner import constant, cosine, zscore
from seedbed_server.learner.estimators import EpisodeReward
from seedbed_server.learner.history import History

DATES = {"schedule_begin": "2026-12-01T00:00Z", "schedule_end": "2026-12-02T00:00Z"}
GUARDED = {"on_drop": "pause", "explore": 0.9}


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ({"estimator": "best"}, ["estimator: 'best'", "'zscore'", "--estimator"]),
        ({"clip": 0}, ["clip: 0", "greater than 0"]),
        ({"history_memory": 0}, ["history_memory: 0", "1"]),
        ({"deadline_seconds": "nan"}, ["deadline_seconds: 'nan'", "finite"]),
        ({"quorum": 0}, ["quorum: 0"]),
        ({"quorum": 1.5}, ["quorum: 1.5"]),
        ({"give_up_seconds": 5}, ["give_up_seconds: 5", "deadline_seconds"]),
        ({"deadline_seconds": 9, "give_up_seconds": 5}, ["give_up_seconds: 5", "9 or more"]),
        ({"idle_seconds": 0}, ["idle_seconds: 0"]),
        ({"stale_limit": -1}, ["stale_limit: -1"]),
        ({"stale_weight": 0}, ["stale_weight: 0"]),
        ({"noise_reuse": 0}, ["noise_reuse: 0"]),
        ({"aggregation": "median"}, ["aggregation: 'median'", "'discounted-sum'"]),
        ({"discount": 0.5}, ["discount: 0.5", "discounted-sum"]),
        ({"reward_low": 1, "reward_high": 1}, ["reward_low: 1", "reward_high"]),
        ({"reward_clip": True}, ["reward_clip", "reward_low or reward_high"]),
        ({"reward_low": "-inf"}, ["reward_low: '-inf'", "finite"]),
        ({"step_bound": 0}, ["step_bound: 0"]),
        ({"anchor_decay": 1}, ["anchor_decay: 1", "less than 1"]),
        ({"anchor_decay": -0.1}, ["anchor_decay: -0.1"]),
        ({"alpha_schedule": "linear", "alpha_floor": 1}, ["alpha_floor: 1", "at most 0.01"]),
        ({"schedule_begin": "2026-12-01T00:00Z"}, ["schedule_begin", "schedule_end as well"]),
        ({"schedule_end": "2026-12-01T00:00Z"}, ["schedule_end", "schedule_begin as well"]),
        ({"schedule_begin": "tomorrow"}, ["schedule_begin: 'tomorrow'", "--schedule-begin"]),
        ({"schedule_begin": "2026-12-01T00:00"}, ["schedule_begin", "timezone"]),
        ({**DATES, "schedule_end": "2026-11-01T00:00Z"}, ["schedule_end", "later date"]),
        ({**DATES, "warmup_updates": 3}, ["warmup_updates: 3", "warmup_seconds"]),
        ({**DATES, "warmup_seconds": 86400}, ["warmup_seconds: 86400", "Use less"]),
        ({"warmup_seconds": 3}, ["warmup_seconds: 3", "warmup_updates"]),
        ({"on_drop": "pause"}, ["on_drop: pause", "explore 1", "0.9"]),
        ({**GUARDED, "drop_low": 2}, ["drop_low: 2", "drop_high"]),
        ({**GUARDED, "drop_bound": 1}, ["drop_bound: 1", "less than 1"]),
        ({**GUARDED, "drop_run_length": 1}, ["drop_run_length: 1"]),
        ({**GUARDED, "drop_error": 1}, ["drop_error: 1"]),
        ({**GUARDED, "drop_block": 1}, ["drop_block: 1"]),
        ({"most_dropped": 2}, ["most_dropped: 2"]),
        ({"least_spread": -1}, ["least_spread: -1"]),
    ],
)
def test_a_wrong_setting_of_learning_names_field_value_and_remedy(
    flags: dict[str, Any], parts: list[str]
) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(**flags)
    for part in parts:
        assert part in str(caught.value)


def test_every_choice_can_be_made_and_planned() -> None:
    for estimator in ("zscore", "centered-rank", "group-relative", "group-baseline", "raw"):
        plan = plan_from(load_settings(estimator=estimator, clip=3))
        assert plan.uses_history == (estimator == "group-baseline")
        plan.estimator(History())
    settings = load_settings(
        **DATES, **{**GUARDED, "on_drop": "rollback"}, sigma_schedule="linear", warmup_seconds=60,
        deadline_seconds=60, give_up_seconds=90, idle_seconds=30, aggregation="discounted-sum", discount=0.9,
        reward_low=0, reward_high=1, reward_clip=True, least_spread=0.1, most_dropped=0.5, most_truncated=0.5,
    )  # fmt: skip
    plan = plan_from(settings)
    assert plan.rewards.roll_back
    assert plan.sigma(0, settings.schedule_end.timestamp()) == settings.sigma_floor  # type: ignore[union-attr]


def test_without_a_word_steps_are_z_scores_a_cosine_sigma_and_a_constant_alpha_to_the_last_bit() -> None:
    plan = plan_from(load_settings())
    sigma, alpha = cosine(5e-3, 1e-3, 100, 0), constant(1e-2)
    for updates in range(120):
        assert plan.sigma(updates, 0.0) == sigma(updates)
        assert plan.alpha(updates, 0.0) == alpha(updates)
    rewards = [EpisodeReward(member, None, value) for member, value in enumerate((0.1, 0.7, 0.2, 0.9))]
    assert plan.estimator(History())(rewards) == zscore(rewards)
    assert plan.population(3, 2, 2, 9.0).sigma == sigma(2)
