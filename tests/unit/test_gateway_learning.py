"""What an operator can choose about learning, through a whole gateway."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from seedbed.v1 import engine_pb2 as pb
from seedbed_server.gateway import guards, ids
from seedbed_server.learner import history
from seedbed_server.store import episodes, learning, tables
from seedbed_server.store.rows import CompletionRow
from tests.unit.fake_engine import FakeEngine
from tests.unit.gateway_server import Running, running


async def lease(it: Running, **extras: Any) -> dict[str, Any]:
    about: dict[str, Any] = (await it.ask(**extras)).json()["seedbed"]
    return about


async def post(it: Running, **fields: Any) -> dict[str, Any]:
    answer: dict[str, Any] = (await it.reward(**fields)).json()
    return answer


async def number(it: Running) -> int:
    value: int = (await it.status())["population"]["id"]
    return value


async def next_population(it: Running, current: int) -> dict[str, Any]:
    await it.until(lambda: it.gateway.leases.population.number == current + 1)  # type: ignore[union-attr]
    last: dict[str, Any] = (await it.status())["last_population"]
    return last


def codes(it: Running) -> list[int]:
    return np.frombuffer(it.engine.applied[-1].coefficients, dtype=np.int8).tolist()


# -- closing -----------------------------------------------------------------------------------------


async def test_at_the_deadline_a_quorum_makes_the_step_and_the_rest_is_left_out(tmp_path: Path) -> None:
    async with running(tmp_path, deadline_seconds=0.4, quorum=0.5) as it:
        leased = [await lease(it) for _ in range(4)]
        for about, value in zip(leased[:2], (1.0, 2.0), strict=True):
            await post(it, episode_id=about["episode_id"], reward=value)
        last = await next_population(it, 0)
        assert (last["outcome"], last["closing"], last["members_rewarded"]) == ("step", "deadline", 2)
        assert (last["episodes"], last["dropped"]) == (4, 2)
        assert last["dropped_by_member"] == [{"member": 2, "share": 1.0}, {"member": 3, "share": 1.0}]
        assert len(it.engine.applied[0].seeds) == 2
        assert it.gateway.updates.version == 1


async def test_what_has_no_quorum_at_the_second_deadline_is_given_up(tmp_path: Path) -> None:
    async with running(tmp_path, deadline_seconds=0.2, give_up_seconds=0.4, quorum=1.0) as it:
        for value in (1.0, 2.0):
            await post(it, episode_id=(await lease(it))["episode_id"], reward=value)
        last = await next_population(it, 0)
        assert (last["outcome"], last["closing"]) == ("too_few_members", "given_up")
        assert it.gateway.updates.version == 0


async def test_a_deadline_that_passed_while_the_server_was_down_is_kept_at_the_next_start(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running(tmp_path, engine, deadline_seconds=2.0) as it:
        for value in (1.0, 2.0):
            await post(it, episode_id=(await lease(it))["episode_id"], reward=value)
    await asyncio.sleep(2.0)
    async with running(tmp_path, engine, deadline_seconds=2.0, ready=False) as it:
        await it.until(lambda: it.gateway.updates.version == 1)


async def test_a_forced_step_takes_what_is_there_and_refuses_less_than_two_members(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        await post(it, episode_id=(await lease(it))["episode_id"], reward=1.0)
        refused = await it.http.post("/v1/learning/step")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "too_few_members")
        assert await number(it) == 0
        await post(it, episode_id=(await lease(it))["episode_id"], reward=2.0)
        made = (await it.http.post("/v1/learning/step")).json()
        assert made == {"object": "step", "population": 0, "outcome": "step", "version": 1}
        assert (await next_population(it, 0))["closing"] == "forced"
        assert it.gateway.updates.version == 1


async def test_idle_episodes_free_their_members_unless_a_completion_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seedbed_server.gateway.state.EXPIRE_SECONDS", 0.05)
    async with running(tmp_path, idle_seconds=0.3) as it:
        busy = asyncio.create_task(it.ask("wait", stream=True))
        await it.until(lambda: len(it.engine.requests) == 1)
        idle, rewarded = await lease(it), await lease(it)
        await post(it, episode_id=rewarded["episode_id"], reward=1.0)
        await asyncio.sleep(0.8)
        shown = {
            about["episode_id"]: (await it.http.get(f"/v1/episodes/{about['episode_id']}")).json()["status"]
            for about in (idle, rewarded)
        }
        assert set(shown.values()) == {"expired"}
        population = it.gateway.leases.population
        assert population is not None
        assert [tally.episodes for tally in population.tallies] == [1, 0, 1, 0]
        assert (await lease(it))["member"] == 1, "the idle one's member is leased again"
        it.engine.tokens.release()
        it.engine.tokens.release()
        busy.cancel()


# -- episodes that go on over an update -------------------------------------------------------------


async def test_an_episode_that_goes_on_over_an_update_counts_as_a_member_of_its_own(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running(tmp_path, engine, stale_weight=0.5) as it:
        strays = [await lease(it) for _ in range(5)]
        for about, value in zip(strays[:4], (1.0, 2.0, 3.0, 4.0), strict=True):
            await post(it, episode_id=about["episode_id"], reward=value)
        await next_population(it, 0)
        answer = await post(it, episode_id=strays[4]["episode_id"], reward=9.0, reward_id="s")
        assert answer["result"] == "accepted"
        assert "1 version behind: it counts 0.5 in population 1" in answer["message"]
        assert (await post(it, episode_id=strays[4]["episode_id"], reward=9.0, reward_id="s"))[
            "result"
        ] == "duplicate"
        assert (await post(it, episode_id=strays[4]["episode_id"], reward=8.0))["result"] == "replaced"
        before = it.gateway.leases.population
        assert before is not None
        assert (before.stale[0].weight, before.stale[0].rewards[strays[4]["episode_id"]].reward) == (0.5, 8.0)
        assert (await it.status())["population"]["stale_episodes"] == 1
    async with running(tmp_path, engine, stale_weight=0.5) as it:
        assert it.gateway.leases.population == before
        await it.population([1.0, 2.0, 3.0, 4.0])
        record = it.engine.applied[-1]
        assert len(record.seeds) == 5
        assert record.seeds[4] == int(strays[4]["seed"])
        late = await post(it, episode_id=strays[4]["episode_id"], reward=1.0)
        assert late["result"] == "late"
        assert "population 1 has counted the episode" in late["message"]
        rows = await it.gateway.store.read(
            lambda c: c.execute(
                sa.select(tables.rewards.c.reward, tables.rewards.c.population, tables.rewards.c.weight)
                .where(tables.rewards.c.episode_id == strays[4]["episode_id"])
                .order_by(tables.rewards.c.id)
            ).all()
        )
        assert [tuple(row) for row in rows] == [(9.0, None, None), (8.0, 1, 0.5), (1.0, None, None)]


async def test_an_episode_that_is_too_far_behind_is_on_record_and_the_reply_says_why(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        stray = (await lease(it))["episode_id"]
        for current in range(2):
            for value in range(4):
                await post(it, episode_id=(await lease(it))["episode_id"], reward=float(value))
            await it.until(lambda number=current: it.gateway.leases.population.number == number + 1)  # type: ignore[union-attr]
        answer = await post(it, episode_id=stray, reward=1.0)
        assert answer["result"] == "late"
        assert "2 versions behind" in answer["message"]
        assert not it.gateway.leases.population.stale  # type: ignore[union-attr]


async def test_a_rollback_in_between_makes_a_reward_late(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        await it.population()
        stray = (await lease(it))["episode_id"]
        assert (await it.http.post("/v1/learning/rollback", json={"to_version": 0})).status_code == 200
        answer = await post(it, episode_id=stray, reward=1.0)
        assert (answer["result"], "rolled back" in answer["message"]) == ("late", True)


async def test_rewards_during_an_update_count_in_the_population_after_it(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        leased = [await lease(it) for _ in range(5)]
        it.engine.apply_gate.clear()
        for about, value in zip(leased[:4], (1.0, 2.0, 3.0, 4.0), strict=True):
            await post(it, episode_id=about["episode_id"], reward=value)
        await it.until(lambda: it.engine.applications == 1)
        assert (await post(it, episode_id=leased[4]["episode_id"], reward=7.0))["result"] == "accepted"
        it.engine.apply_gate.set()
        await next_population(it, 0)
        population = it.gateway.leases.population
        assert population is not None
        assert [item.rewards[leased[4]["episode_id"]].reward for item in population.stale] == [7.0]


# -- rewards -----------------------------------------------------------------------------------------


async def test_a_batch_is_judged_in_its_order_and_kept_in_one_commit(tmp_path: Path) -> None:
    async with running(tmp_path, episodes_per_member=100) as it:
        one, other = await lease(it), await lease(it)
        rewards = [
            {"episode_id": one["episode_id"], "reward": 1.0, "reward_id": "a"},
            {"episode_id": one["episode_id"], "reward": 1.0, "reward_id": "a"},
            {"episode_id": other["episode_id"], "reward": 1.0, "reward_id": "a"},
            {"completion_id": other["completion_id"], "reward": 3},
            {"episode_id": "ep_nobody", "reward": 0.5},
        ]
        response = await it.http.post("/v1/feedback/batch", json={"rewards": rewards})
        assert response.status_code == 200
        data = response.json()["data"]
        assert [item["result"] for item in data] == [
            "accepted", "duplicate", "conflict", "accepted", "unknown",
        ]  # fmt: skip
        assert data[2]["error"]["code"] == "reward_conflict"
        population = it.gateway.leases.population
        assert population is not None
        assert population.tallies[other["member"]].rewards[other["episode_id"]].reward == 3.0


async def test_a_batch_under_a_session_key_is_for_its_episode_alone(tmp_path: Path) -> None:
    async with running(tmp_path, population_size=2) as it:
        opened = (await it.http.post("/v1/episodes")).json()
        other = await lease(it)
        headers = {"authorization": f"Bearer {opened['api_key']}"}
        foreign = {"rewards": [{"reward": 1.0}, {"episode_id": other["episode_id"], "reward": 1.0}]}
        response = await it.http.post("/v1/feedback/batch", json=foreign, headers=headers)
        assert (response.status_code, response.json()["error"]["param"]) == (403, "rewards.1.episode_id")
        mixed = {"rewards": [{"reward": 1.0}, {"completion_id": other["completion_id"], "reward": 1.0}]}
        response = await it.http.post("/v1/feedback/batch", json=mixed, headers=headers)
        assert [item["result"] for item in response.json()["data"]] == ["accepted", "unknown"]
        final = {"rewards": [{"reward": 2.0, "final": True}]}
        response = await it.http.post("/v1/feedback/batch", json=final, headers=headers)
        assert response.json()["data"][0]["result"] == "replaced"
        assert (await it.http.get(f"/v1/episodes/{opened['id']}")).json()["status"] == "closed"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"rewards": []}, "rewards"),
        ({"rewards": [{"episode_id": "e", "reward": 1}] * 65}, "rewards"),
        ({"rewards": [{"episode_id": "e", "reward": 1}, {"episode_id": "e"}]}, "rewards.1.reward"),
        ({"rewards": [{"reward": 1}]}, "rewards.0.episode_id"),
        ({"rewards": [3]}, "rewards.0"),
        ({"reward": 1}, "reward"),
    ],
)
async def test_one_reward_that_cannot_be_used_refuses_its_batch_by_name(
    tmp_path: Path, body: dict[str, Any], param: str
) -> None:
    async with running(tmp_path) as it:
        response = await it.http.post("/v1/feedback/batch", json=body)
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_bounds_refuse_or_clip(tmp_path: Path) -> None:
    async with running(tmp_path / "refuse", reward_low=0, reward_high=1) as it:
        about = await lease(it)
        response = await it.reward(episode_id=about["episode_id"], reward=2.0)
        assert (response.status_code, response.json()["error"]["param"]) == (400, "reward")
        assert "outside 0 to 1" in response.json()["error"]["message"]
    async with running(tmp_path / "clip", reward_low=0, reward_high=1, reward_clip=True) as it:
        about = await lease(it)
        assert (await post(it, episode_id=about["episode_id"], reward=2.0))["result"] == "accepted"
        assert (await it.http.get(f"/v1/episodes/{about['episode_id']}")).json()["reward"] == 1.0


@pytest.mark.parametrize(
    ("settings", "total"),
    [
        ({"aggregation": "sum"}, 6.0),
        ({"aggregation": "last"}, 4.0),
        ({"aggregation": "discounted-sum", "discount": 0.5}, 1 * 2 + 0.25 * 4),
        ({}, 3.0),
    ],
)
async def test_the_rewards_of_completions_make_that_of_the_episode(
    tmp_path: Path, settings: dict[str, Any], total: float
) -> None:
    async with running(tmp_path, episodes_per_member=9, **settings) as it:
        first = await lease(it)
        turns = [await lease(it, seedbed={"episode_id": first["episode_id"]}) for _ in range(2)]
        # The newest is rewarded first; the one in the middle has none.
        await post(it, completion_id=turns[1]["completion_id"], reward=4.0)
        await post(it, completion_id=first["completion_id"], reward=2.0)
        population = it.gateway.leases.population
        assert population is not None
        assert population.tallies[first["member"]].rewards[first["episode_id"]].reward == total
        assert (await it.http.get(f"/v1/episodes/{first['episode_id']}")).json()["reward"] == total


async def test_an_episode_with_more_rewards_to_come_counts_with_the_final_one(tmp_path: Path) -> None:
    async with running(tmp_path, aggregation="sum", population_size=2) as it:
        first, other = await lease(it), await lease(it)
        turn = await lease(it, seedbed={"episode_id": first["episode_id"]})
        await post(it, episode_id=other["episode_id"], reward=1.0)
        await post(it, completion_id=first["completion_id"], reward=2.0, final=False)
        assert await number(it) == 0, "more is to come"
        await post(it, completion_id=turn["completion_id"], reward=3.0, final=True)
        await next_population(it, 0)
        assert (await it.status())["last_update"]["reward_max"] == 5.0
        ended = await it.ask(seedbed={"episode_id": first["episode_id"]})
        assert (ended.status_code, ended.json()["error"]["code"]) == (409, "episode_closed")


async def test_an_episode_that_ends_without_its_final_reward_counts_with_what_it_has(tmp_path: Path) -> None:
    async with running(tmp_path, population_size=2) as it:
        first, other = await lease(it), await lease(it)
        await post(it, episode_id=other["episode_id"], reward=1.0)
        await post(it, completion_id=first["completion_id"], reward=2.0, final=False)
        await it.http.delete(f"/v1/episodes/{first['episode_id']}")
        assert (await next_population(it, 0))["outcome"] == "step"


async def test_a_reward_that_overtakes_its_completion_waits_for_it_and_not_for_ever(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        about, completion = await lease(it), ids.completion_id()
        waiting = asyncio.create_task(post(it, completion_id=completion, reward=1.0))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        row = CompletionRow(completion, about["episode_id"], "chat", about["member"], "running", 1.0)
        await it.gateway.store.write(lambda c: episodes.insert_completion(c, row))
        assert (await waiting)["result"] == "accepted"
        never = await asyncio.wait_for(post(it, completion_id=ids.completion_id(), reward=1.0), 5)
        assert never["result"] == "unknown"


# -- from rewards to a step --------------------------------------------------------------------------


async def test_members_are_compared_within_their_groups(tmp_path: Path) -> None:
    async with running(tmp_path, estimator="group-relative") as it:
        for group, value in (("easy", 10.0), ("easy", 11.0), ("hard", 1.0), ("hard", 0.0)):
            about = await lease(it, seedbed={"group": group})
            await post(it, episode_id=about["episode_id"], reward=value)
        await next_population(it, 0)
        assert codes(it) == [-127, 127, 127, -127]


@pytest.mark.parametrize("estimator", ["zscore", "centered-rank", "group-relative", "group-baseline", "raw"])
async def test_the_largest_floats_as_rewards_end_in_a_step_or_a_reason(
    tmp_path: Path, estimator: str
) -> None:
    async with running(tmp_path, estimator=estimator, episodes_per_member=2) as it:
        for current, sign in ((0, 1.0), (1, -1.0)):
            control = await lease(it, model="toy:live")
            await post(it, episode_id=control["episode_id"], reward=sign * 1.7e308)
            for value in (1.7e308, -1.7e308, 0.0, 1e-320, -1.7e308, 1.7e308, 3.0, 1.0):
                about = await lease(it, seedbed={"group": "g"})
                await post(it, episode_id=about["episode_id"], reward=value)
            last = await next_population(it, current)
            assert last["outcome"] in ("step", "no_spread", "out_of_range")
        assert it.gateway.leases.halted is None


async def test_a_fault_in_the_loop_is_said_and_the_live_model_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as it:
        monkeypatch.setattr("seedbed_server.gateway.ledger.close_population", lambda *_, **__: 1 / 0)
        for value in range(4):
            await post(it, episode_id=(await lease(it))["episode_id"], reward=float(value))
        await it.until(lambda: it.gateway.leases.halted is not None)
        assert any("ZeroDivisionError" in warning for warning in (await it.status())["warnings"])
        assert (await it.ask(model="toy:live")).status_code == 200


async def test_a_group_that_comes_again_meets_another_member_also_after_a_restart(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running(tmp_path, engine, episodes_per_member=2) as it:
        before = [(await lease(it, seedbed={"group": g}))["member"] for g in ("a", "b", "a")]
    async with running(tmp_path, engine, episodes_per_member=2) as it:
        after = [(await lease(it, seedbed={"group": g}))["member"] for g in ("a", "b", "a", "b", "b")]
    assert sorted([before[0], before[2], after[0], after[2]]) == [0, 1, 2, 3]
    assert sorted([before[1], after[1], after[3], after[4]]) == [0, 1, 2, 3]


async def test_what_groups_earned_and_what_controls_did_is_remembered_over_a_restart(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running(tmp_path, engine, estimator="group-baseline", prior=0.0) as it:
        control = await lease(it, model="toy:live", seedbed={"group": "easy"})
        assert (await post(it, episode_id=control["episode_id"], reward=16.0))["result"] == "accepted"
        for group, value in (("easy", 10.0), ("easy", 11.0), ("hard", 1.0), ("hard", 0.0)):
            about = await lease(it, seedbed={"group": group})
            await post(it, episode_id=about["episode_id"], reward=value)
        last = await next_population(it, 0)
        assert (last["controls"], last["control_mean"]) == (1, 16.0)
    async with running(tmp_path, engine, estimator="group-baseline", prior=0.0) as it:
        known = history.from_json(await it.gateway.store.read(lambda c: learning.get(c, learning.HISTORY)))
        assert known.groups["easy"].mean == pytest.approx(37 / 3)
        assert (known.groups["hard"].count, known.everything.count) == (2, 5)
        for group, value in (("easy", 37 / 3), ("easy", 37 / 3 + 1), ("hard", 0.5), ("hard", 1.5)):
            about = await lease(it, seedbed={"group": group})
            await post(it, episode_id=about["episode_id"], reward=value)
        await it.until(lambda: it.gateway.updates.version == 2)
        assert codes(it) == [-127, 127, -127, 127], "the difficulty of the groups is taken out"


async def test_the_same_seeds_come_again_and_clip_and_step_bound_hold(tmp_path: Path) -> None:
    options = {"noise_reuse": 2, "clip": 0.5, "step_bound": 1e-4, "alpha": 0.5}
    async with running(tmp_path, **options) as it:
        seeds = []
        for _ in range(3):
            population = it.gateway.leases.population
            assert population is not None
            seeds.append([member.seed for member in population.members])
            await it.population([0.0, 0.0, 0.0, 9.0])
        assert seeds[0] == seeds[1] != seeds[2]
        assert codes(it) == [-127, -127, -127, 127]
        last = (await it.status())["last_population"]
        assert last["limited"]
        assert last["expected_rms"] == pytest.approx(1e-4)
        assert (await it.status())["last_update"]["step"]["alpha"] < 0.5


async def test_the_decay_towards_the_base_is_in_the_record_and_falls_with_alpha(tmp_path: Path) -> None:
    options = {"anchor_decay": 0.05, "alpha": 0.5, "alpha_floor": 0.1, "alpha_schedule": "linear"}
    async with running(tmp_path, total_updates=3, **options) as it:
        for _ in range(3):
            await it.population()
        decays = [record.decay for record in it.engine.applied]
        assert decays == [np.float32(0.05), np.float32(0.05 * 0.3 / 0.5), np.float32(0.05 * 0.1 / 0.5)]
        updates = (await it.http.get("/v1/updates")).json()["data"]
        assert [update["decay"] for update in updates] == decays
        assert (await it.status())["last_update"]["step"]["decay"] == decays[-1]


async def test_without_a_decay_the_record_says_nothing_of_one(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        await it.population()
        (record,) = it.engine.applied
        assert record.decay == 0
        without = pb.UpdateRecord.FromString(record.SerializeToString())
        without.ClearField("decay")
        assert without.SerializeToString(deterministic=True) == record.SerializeToString(deterministic=True)


async def test_schedules_go_by_date_where_dates_are_given(tmp_path: Path) -> None:
    dates = {"schedule_begin": "2001-01-01T00:00Z", "schedule_end": "2002-01-01T00:00Z"}
    options = {"alpha_schedule": "linear", "alpha": 0.5, "alpha_floor": 0.25, **dates}
    async with running(
        tmp_path, sigma=0.02, sigma_floor=0.01, **{**options, "sigma_schedule": "cosine"}
    ) as it:
        status = await it.status()
        assert (status["sigma"], status["alpha"]) == (0.01, 0.25)
        await it.population()
        assert (it.engine.applied[0].sigma, it.engine.applied[0].alpha) == (0.01, 0.25)


async def test_a_rollback_takes_the_schedule_back_as_well(tmp_path: Path) -> None:
    async with running(
        tmp_path, sigma=0.03, sigma_floor=0.01, sigma_schedule="linear", total_updates=5
    ) as it:
        for _ in range(3):
            await it.population()
        await it.http.post("/v1/learning/rollback", json={"to_version": 1})
        await it.until(lambda: it.gateway.updates.version == 4)
        assert it.gateway.leases.population.sigma == pytest.approx(0.025)  # type: ignore[union-attr]


async def test_figures_beyond_their_limits_are_warnings(tmp_path: Path) -> None:
    async with running(tmp_path, least_spread=100.0, most_dropped=0.1) as it:
        for _ in range(2):
            await lease(it)
        for about in [await lease(it) for _ in range(6)][-4:]:
            await post(it, episode_id=about["episode_id"], reward=float(about["member"]))
        warnings = (await it.status())["warnings"]
        if await number(it) == 0:
            await it.http.post("/v1/learning/step")
            warnings = (await it.status())["warnings"]
        assert any("spread" in warning for warning in warnings)
        assert any("episodes without a reward" in warning for warning in warnings)


# -- pause and guard ---------------------------------------------------------------------------------


async def test_a_pause_stops_exploring_and_closing_and_survives_a_restart(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running(tmp_path, engine) as it:
        leased = [await lease(it) for _ in range(4)]
        answer = (await it.http.post("/v1/learning/pause", json={"reason": "looking"})).json()
        assert (answer["paused"]["by"], answer["paused"]["reason"]) == ("operator", "looking")
        assert (await lease(it))["member"] is None, "the live model answers"
        for about in leased:
            answer = await post(it, episode_id=about["episode_id"], reward=float(about["member"]))
            assert answer["result"] == "accepted"
        refused = await it.http.post("/v1/learning/step")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "learning_paused")
    async with running(tmp_path, engine) as it:
        await asyncio.sleep(0.2)
        assert await number(it) == 0
        assert any("/v1/learning/resume" in warning for warning in (await it.status())["warnings"])
        assert (await it.http.post("/v1/learning/resume")).json()["paused"] is None
        await next_population(it, 0)
        assert (await lease(it))["member"] == 0


async def drop(it: Running, good: int, bad: int) -> None:
    """Rewards of controls: good ones, an update, then bad ones."""

    async def controls(count: int, value: float) -> None:
        for _ in range(count):
            about = await lease(it, model="toy:live")
            await post(it, episode_id=about["episode_id"], reward=value)

    await controls(good, 1.0)
    current = await number(it)
    leased: dict[int, str] = {}
    for _ in itertools.count():
        about = await lease(it)
        if about["member"] is not None:
            leased[about["member"]] = about["episode_id"]
        if len(leased) == 4:
            break
    for member, episode in leased.items():
        await post(it, episode_id=episode, reward=float(member))
    await next_population(it, current)
    await controls(bad, 0.0)


GUARD: dict[str, Any] = {
    "explore": 0.9, "drop_block": 30, "drop_run_length": 100.0, "drop_bound": 0.05, "drop_error": 0.2
}  # fmt: skip


async def test_a_drop_of_the_controls_pauses_learning_until_somebody_resumes(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running(tmp_path, engine, on_drop="pause", **GUARD) as it:
        await drop(it, 30, 20)
    async with running(tmp_path, engine, on_drop="pause", **GUARD) as it:
        pause = (await it.status())["learning"]["paused"]
        assert pause["by"] == "guard"
        assert "versions 0 to 0" in pause["reason"]
        shown = (await it.status())["learning"]["guard"]
        assert (shown["best"]["last_version"], shown["evidence"] >= 100) == (0, True)
        guard = await it.gateway.store.read(guards.guard_of)
        assert guard.seen >= 30
        await it.http.post("/v1/learning/resume")
        guard = await it.gateway.store.read(guards.guard_of)
        assert (max(guard.evidence), guard.best is not None) == (0.0, True)


async def test_a_drop_goes_back_to_the_best_version_and_a_second_one_there_pauses(tmp_path: Path) -> None:
    async with running(tmp_path, on_drop="rollback", **GUARD) as it:
        await drop(it, 30, 8)
        await it.until(lambda: it.gateway.updates.version == 2)
        assert it.gateway.leases.paused is None
        assert it.gateway.updates.digest == it.engine.start
        updates = (await it.http.get("/v1/updates")).json()["data"]
        assert [(update["kind"], update["to_version"]) for update in updates] == [
            ("update", None), ("rollback", 0),
        ]  # fmt: skip
        assert "earns less" in updates[1]["reason"]
        for _ in range(20):
            await post(it, episode_id=(await lease(it, model="toy:live"))["episode_id"], reward=0.0)
        await it.until(lambda: it.gateway.leases.paused is not None)
        await it.until(lambda: it.gateway.leases.paused.roll_back_to is None)  # type: ignore[union-attr]
        assert it.gateway.updates.version == 2
