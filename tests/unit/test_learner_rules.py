"""Closing, expiry, staleness and reuse of noise: every rule at its edges."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbed_server.learner import (
    Closing,
    Member,
    NoStep,
    Population,
    StaleRules,
    Step,
    close_reason,
    lease,
    make_step,
    needed,
    open_population,
    reward_stale,
    staleness,
    statistics,
    zscore,
)
from seedbed_server.learner.closing import OpenEpisode, expire, idle, look_again
from seedbed_server.learner.population import (
    all_rewards,
    complete_members,
    episode_rewards,
    explored,
    is_complete,
    reward_episode,
)
from tests.reference import learning

RULES = Closing(deadline_seconds=60, quorum=0.5, give_up_seconds=600)


def population(size: int = 4, number: int = 0, *, mirrored: bool = False, reuse: int = 1) -> Population:
    return open_population(
        number=number, version=number, sigma=0.01, size=size, episodes_per_member=1, mirrored=mirrored,
        run_seed=7, reuse=reuse, opened_at=1000.0,
    )  # fmt: skip


def rewarded(start: Population, values: list[float]) -> Population:
    for member, value in enumerate(values):
        start = reward_episode(start, member, f"e{member}", None, value)
    return start


# -- closing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewards", "now", "reason"),
    [
        (4, 1000, "complete"),
        (3, 1059.999, None),
        (3, 1060, "deadline"),
        (2, 1060, "deadline"),
        (1, 1060, None),
        (1, 1599.9, None),
        (1, 1600, "given_up"),
        (2, 1600, "deadline"),
        (0, 1e9, None),
        (3, 0, None),
    ],
)
def test_a_population_closes_for_one_reason(rewards: int, now: float, reason: str | None) -> None:
    assert close_reason(rewarded(population(), [1.0] * rewards), now, RULES) == reason


def test_without_rules_or_an_opening_time_only_complete_closes() -> None:
    three = rewarded(population(), [1.0, 2.0, 3.0])
    assert close_reason(three, 1e9) is None
    assert close_reason(replace(three, opened_at=None), 1e9, RULES) is None
    assert close_reason(rewarded(three, [0.0] * 4), 0.0) == "complete"


def test_what_closes_without_a_quorum_makes_no_step_and_says_why() -> None:
    start = population(10)
    quorum = needed(start, RULES)
    assert quorum == 5
    assert make_step(rewarded(start, [1.0, 2.0]), zscore, 0.1, quorum=quorum) == NoStep("too_few_members")
    assert make_step(start, zscore, 0.1, quorum=quorum) == NoStep("no_rewards")
    assert make_step(rewarded(start, [1.0]), zscore, 0.1) == NoStep("one_survivor")
    assert isinstance(make_step(rewarded(start, [1.0, 2.0, 3.0, 4.0, 5.0]), zscore, 0.1, quorum=5), Step)


@settings(deadline=None)
@given(st.integers(2, 1000), st.integers(1, 1000))
def test_a_quorum_is_the_share_rounded_up_without_being_fooled_by_floats(size: int, permille: int) -> None:
    exact = max(2, -(-permille * size // 1000))
    assert needed(population(size), Closing(quorum=permille / 1000)) == exact


def test_look_again_says_when_time_alone_can_close_it() -> None:
    start = population()
    assert look_again(start, 1000.0, RULES) is None, "nothing closes without a reward"
    one = rewarded(start, [1.0])
    assert look_again(one, 1010.0, RULES) == 50.0
    assert look_again(one, 1060.0, RULES) == 540.0
    assert look_again(one, 1600.0, RULES) is None
    assert look_again(one, 1010.0, Closing()) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"deadline_seconds": 0}, "deadline: 0 s"),
        ({"deadline_seconds": math.nan}, "deadline: nan s"),
        ({"quorum": 0}, "quorum: 0 is no share"),
        ({"quorum": 1.1}, "quorum: 1.1"),
        ({"give_up_seconds": 5}, "give_up: 5 s is not after the deadline, None s"),
        ({"deadline_seconds": 9, "give_up_seconds": 5}, "give_up: 5 s"),
    ],
)
def test_closing_rules_that_contradict_each_other_are_refused(
    arguments: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Closing(**arguments)


def test_idle_episodes_free_their_members_unless_they_run_or_have_a_reward() -> None:
    current = population(3)
    episodes = []
    for name, running, has_reward in (("a", False, False), ("b", True, False), ("c", False, True)):
        current, member = lease(current, "g")
        episodes.append(OpenEpisode(name, member.index, "g", 100.0, running, has_reward))
    episodes.append(OpenEpisode("control", None, None, 100.0))
    assert idle(episodes, 159.9, 60) == ()
    gone = idle(episodes, 160.0, 60)
    assert [item.id for item in gone] == ["a", "c", "control"]
    assert [tally.episodes for tally in expire(current, gone).tallies] == [0, 1, 1]
    assert lease(expire(current, gone), "g")[1].index == 0
    with pytest.raises(ValueError, match=r"idle: 0 s"):
        idle(episodes, 0.0, 0)


# -- staleness and reuse -----------------------------------------------------------------------------


def test_staleness_counts_up_to_its_limit_and_says_why_beyond() -> None:
    rules = StaleRules(limit=2, weight=0.5)
    found = [staleness(10, now, rules) for now in (10, 11, 12, 13)]
    assert [(item.behind, item.weight) for item in found] == [(0, 1.0), (1, 0.5), (2, 0.5), (3, None)]
    assert "3 versions behind, and at most 2 count" in found[-1].message
    assert "1 version behind" in found[1].message
    assert staleness(3, 4, StaleRules()).weight == 1.0
    assert staleness(3, 5, StaleRules()).weight is None
    with pytest.raises(ValueError, match="version: 5 is after"):
        staleness(5, 4, rules)
    with pytest.raises(ValueError, match=r"stale_weight: 0\.0 is no weight"):
        StaleRules(weight=0.0)
    with pytest.raises(ValueError, match="stale_limit: -1"):
        StaleRules(limit=-1)


def with_stale(start: Population, episode: str, reward: float, weight: float, origin: int = 0) -> Population:
    return reward_stale(
        start, origin=origin, member=Member(2, 99, -1), behind=1, weight=weight, episode_id=episode,
        group=None, reward=reward,
    )  # fmt: skip


def test_a_stale_member_counts_in_the_step_with_its_own_seed_sign_and_weight() -> None:
    own = rewarded(population(4, number=1), [1.0, 2.0, 3.0, 5.0])
    current = with_stale(with_stale(own, "late", 9.0, 0.5), "later", 7.0, 0.5)
    assert episode_rewards(current) == episode_rewards(own), "raw statistics are of its own members"
    assert statistics(episode_rewards(current)) == statistics(episode_rewards(own))
    assert explored(current)[4] == (Member(4, 99, -1), 0.5)
    step = make_step(current, zscore, 0.02)
    assert isinstance(step, Step)
    assert step.seeds == (*(member.seed for member in own.members), 99)
    weights = learning.weighted_zscore(
        np.array([1.0, 2.0, 3.0, 5.0, 8.0]), np.array([1.0, 1.0, 1.0, 1.0, 0.5])
    )
    codes, scale = learning.quantised(weights * np.array([1, 1, 1, 1, -1]))
    assert step.coefficients == tuple(codes)
    assert step.vector_multiplier == float(np.float32(0.02 * float(scale) / (4.5 * math.sqrt(8))))
    assert step.members == 5


def test_nobody_waits_for_stale_members_and_nobody_leases_one() -> None:
    current = with_stale(population(2, number=1), "late", 9.0, 1.0)
    assert (complete_members(current), is_complete(current)) == (0, False)
    assert {lease(current, None)[1].index for _ in range(3)} == {0}
    assert make_step(current, zscore, 0.1, quorum=2) == NoStep("too_few_members")
    replaced = with_stale(current, "late", 4.0, 1.0)
    assert [item.reward for item in all_rewards(replaced)] == [4.0]
    with pytest.raises(ValueError, match="population: 1 is not before 1"):
        with_stale(current, "e", 1.0, 1.0, origin=1)


def test_stale_members_come_in_one_order_whoever_was_first() -> None:
    start = population(2, number=5)
    one = with_stale(with_stale(start, "a", 1.0, 1.0, origin=3), "b", 2.0, 1.0, origin=4)
    other = with_stale(with_stale(start, "b", 2.0, 1.0, origin=4), "a", 1.0, 1.0, origin=3)
    assert one == other


@pytest.mark.parametrize("mirrored", [False, True])
def test_noise_is_used_again_for_k_populations(mirrored: bool) -> None:
    seeds = [[m.seed for m in population(4, number=n, mirrored=mirrored, reuse=3).members] for n in range(7)]
    assert seeds[0] == seeds[1] == seeds[2] != seeds[3] == seeds[4] == seeds[5] != seeds[6]
    assert population(4, number=2).members == population(4, number=2, reuse=1).members
    with pytest.raises(ValueError, match="noise_reuse: 0"):
        population(reuse=0)


def test_a_stale_member_of_a_seed_that_is_used_again_adds_to_its_coefficient() -> None:
    own = rewarded(population(2, number=1, reuse=2), [1.0, 2.0])
    current = reward_stale(
        own, origin=0, member=own.members[0], behind=1, weight=1.0, episode_id="late", group=None, reward=6.0
    )
    step = make_step(current, zscore, 0.1)
    assert isinstance(step, Step)
    assert len(step.seeds) == 2
    assert step.coefficients[0] > 0 > step.coefficients[1]
