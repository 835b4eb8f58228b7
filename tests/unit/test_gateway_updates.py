"""The life of an update, and what is left when a process dies in the middle of it."""

import asyncio
import struct
from pathlib import Path

import grpc
import numpy as np
import pytest

from seedbed.v1 import engine_pb2 as pb
from seedbed_server.gateway import leases as leases_module
from seedbed_server.store import Store, journal
from tests.unit.fake_engine import FakeEngine
from tests.unit.gateway_server import running


async def test_a_complete_population_becomes_one_update_that_is_journalled_applied_and_published(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, sigma=0.02, alpha=0.5) as it:
        population = it.gateway.leases.population
        assert population is not None
        await it.population([1.0, 2.0, 3.0, 6.0])
        (record,) = it.engine.applied
        z = (np.array([1.0, 2, 3, 6]) - 3) / np.std([1.0, 2, 3, 6])
        coefficients = np.frombuffer(record.coefficients, dtype=np.int8)
        assert list(record.seeds) == [member.seed for member in population.members]
        scale = np.float32(np.abs(z).max() / 127)
        assert (coefficients == np.rint(z / scale)).all()
        assert record.matrix_multiplier == np.float32(0.5 * float(scale) / (4 * 8))
        assert (record.version, record.noise_version, record.rank, record.from_digest) == (
            1,
            1,
            1,
            it.engine.start,
        )
        assert (record.sigma, record.alpha, record.rounding) == (0.02, 0.5, pb.ROUNDING_STOCHASTIC)

        status = await it.status()
        assert (status["version"], status["digest"]) == (1, it.engine.digest.hex())
        assert status["last_update"]["reward_mean"] == 3.0
        assert status["population"].pop("opened_at") > 0
        assert status["population"] == {
            "id": 1, "size": 4, "episodes_per_member": 1, "members_complete": 0, "rewards": 0,
            "episodes_open": 0, "waiting_for": "4 rewards for members 0, 1, 2, 3",
            "stale_episodes": 0,
        }  # fmt: skip
        (update,) = (await it.http.get("/v1/updates")).json()["data"]
        assert update["reward_spread"] == pytest.approx(np.std([1.0, 2, 3, 6]))
        assert (update["reward_min"], update["reward_max"], update["best_member"]) == (1.0, 6.0, 3)
        assert (update["digest"], update["scale"], update["members"]) == (it.engine.digest.hex(), scale, 4)
        assert update["record_bytes"] == record.ByteSize()
        assert (await it.http.get("/v1/updates?after=1")).json()["data"] == []
        assert (await it.ask()).json()["seedbed"]["version"] == 1


async def test_populations_have_new_seeds_and_sigma_follows_its_schedule(tmp_path: Path) -> None:
    options = {"sigma": 0.03, "sigma_floor": 0.01, "sigma_schedule": "cosine", "total_updates": 3}
    async with running(tmp_path, **options) as it:
        sigmas, seeds = [], set()
        for _ in range(4):
            population = it.gateway.leases.population
            assert population is not None
            sigmas.append(population.sigma)
            seeds |= {member.seed for member in population.members}
            await it.population()
        assert sigmas == pytest.approx([0.03, 0.02, 0.01, 0.01])
        assert (sigmas[0], sigmas[2]) == (0.03, 0.01)
        assert len(seeds) == 16


async def test_mirrored_members_are_asked_with_both_signs(tmp_path: Path) -> None:
    async with running(tmp_path, sampling="mirrored") as it:
        await it.population([4.0, 1.0, 2.0, 2.0])
        addresses = [address for _, address in it.engine.requests]
        assert [sigma for _, sigma in addresses] == [0.01, -0.01, 0.01, -0.01]  # type: ignore[misc]
        (record,) = it.engine.applied
        assert len(record.seeds) == 2
        assert np.frombuffer(record.coefficients, dtype=np.int8).tolist() == [127, 0]


async def test_equal_rewards_make_no_step_say_why_and_new_seeds_are_tried(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        before = it.gateway.leases.population
        await it.population([1.0] * 4)
        after = it.gateway.leases.population
        assert before is not None
        assert after is not None
        assert (after.number, after.version, it.gateway.updates.version) == (1, 0, 0)
        assert {m.seed for m in before.members}.isdisjoint(m.seed for m in after.members)
        assert it.engine.applied == []
        status = await it.status()
        last = status["last_population"]
        assert (last["id"], last["outcome"], last["closing"]) == (0, "no_spread", "complete")
        assert any("no_spread" in warning for warning in status["warnings"])
        assert status["last_update"] is None


async def test_new_episodes_wait_for_an_update_and_are_refused_with_retry_after_when_it_takes_too_long(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, hold_seconds=0.3) as it:
        it.engine.apply_gate.clear()
        known = (await it.ask()).json()["seedbed"]["episode_id"]
        await it.reward(episode_id=known, reward=0.0)
        for value in (1.0, 2.0, 3.0):
            await it.reward(episode_id=(await it.ask()).json()["seedbed"]["episode_id"], reward=value)
        await it.until(lambda: it.engine.applications == 1)
        held = await it.ask()
        assert held.status_code == 429
        assert 0 < int(held.headers["retry-after"]) <= 120
        assert (await it.ask(seedbed={"episode_id": known})).status_code == 200, "a known episode goes on"
        assert (await it.ask(model="toy:live")).status_code == 200
        waiting = asyncio.create_task(it.ask())
        await asyncio.sleep(0.05)
        it.engine.apply_gate.set()
        response = await waiting
        assert response.json()["seedbed"]["version"] == 1
        assert response.json()["seedbed"]["population"] == 1


async def test_an_update_that_fails_in_passing_is_repeated_and_applied_once(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        it.engine.fail_apply = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED]
        await it.population()
        assert (it.engine.applications, len(it.engine.applied), it.gateway.updates.version) == (3, 1, 1)


async def test_an_engine_that_refuses_an_update_is_replaced_and_learning_halts_if_that_does_not_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seedbed_server.gateway.engine_link._BACKOFF", (0.01,))
    async with running(tmp_path) as it:
        it.engine.fail_apply = [grpc.StatusCode.FAILED_PRECONDITION]
        await it.population()
        assert (len(it.children), it.gateway.updates.version) == (2, 1)
        it.engine.fail_apply = [grpc.StatusCode.FAILED_PRECONDITION] * 3
        for value in range(4):
            answer = (await it.ask()).json()
            await it.reward(episode_id=answer["seedbed"]["episode_id"], reward=value)
        await it.until(lambda: it.gateway.leases.halted is not None)
        refused = await it.ask()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "learning_halted")
        assert any("refuses" in warning for warning in (await it.status())["warnings"])
        await it.until(lambda: it.gateway.link.state == "ready")
        assert (await it.ask(model="toy:live")).status_code == 200


async def test_a_restart_goes_on_with_version_digest_population_and_rewards(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running(tmp_path, engine) as it:
        for _ in range(3):
            await it.population()
        digest = engine.digest
        open_episode = (await it.ask()).json()["seedbed"]
        await it.reward(episode_id=open_episode["episode_id"], reward=7.0)
        before, term = it.gateway.leases.population, it.gateway.link.term
    async with running(tmp_path, engine) as it:
        assert (it.gateway.updates.version, it.gateway.updates.digest, engine.digest) == (3, digest, digest)
        assert it.gateway.leases.population == before
        assert it.gateway.link.term == term + 1
        assert engine.restores == 1
        again = (await it.ask(seedbed={"episode_id": open_episode["episode_id"]})).json()["seedbed"]
        assert (again["member"], again["seed"]) == (open_episode["member"], open_episode["seed"])
        assert (await it.status())["last_update"]["version"] == 3
        for member in range(3):
            answer = (await it.ask()).json()["seedbed"]
            assert answer["member"] == member + 1
            await it.reward(episode_id=answer["episode_id"], reward=float(member))
        await it.until(lambda: it.gateway.updates.version == 4)


async def test_a_record_that_was_journalled_and_not_applied_is_applied_after_a_restart(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running(tmp_path, engine) as it:
        engine.apply_gate.clear()
        for value in range(4):
            answer = (await it.ask()).json()
            await it.reward(episode_id=answer["seedbed"]["episode_id"], reward=float(value))
        await it.until(lambda: engine.applications == 1)
    assert engine.applied == []
    with Store(tmp_path / "store.sqlite") as store:
        (row,) = store.read_now(journal.verified)
        assert row.digest is None
    engine.apply_gate.set()
    async with running(tmp_path, engine) as it:
        assert (it.gateway.updates.version, len(engine.applied)) == (1, 1)
        population = it.gateway.leases.population
        assert population is not None
        assert (population.number, population.version) == (1, 1)


async def test_an_update_that_was_applied_and_not_published_is_not_applied_twice(tmp_path: Path) -> None:
    """The engine lives on over the gateway's death: it answers the repeated record as the first time."""
    async with running(tmp_path) as it:
        await it.population()
        record = it.engine.applied[0]
        answer = await it.gateway.link.ready.ApplyUpdate(
            pb.ApplyUpdateRequest(
                term=it.gateway.link.term, from_version=0, from_digest=it.engine.start, record=record
            )
        )
        assert (answer.state.version, len(it.engine.applied)) == (1, 1)


async def test_a_dead_engine_is_503_then_restored_with_an_equal_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seedbed_server.gateway.engine_link._BACKOFF", (0.05,))
    async with running(tmp_path) as it:
        for _ in range(2):
            await it.population()
        digest = it.engine.digest
        it.engine.may_start.clear()
        await it.children[-1].die()
        await it.until(lambda: it.gateway.link.state != "ready")
        response = await it.ask()
        assert response.status_code == 503
        assert 1 <= int(response.headers["retry-after"]) <= 5, "the last start took no time"
        assert (await it.http.get("/readyz")).status_code == 503
        rewarded = (await it.reward(episode_id="ep_x", reward=1.0)).json()
        assert rewarded["result"] == "unknown", "rewards are taken meanwhile"
        it.engine.may_start.set()
        await it.until(lambda: it.gateway.link.state == "ready")
        assert (it.engine.digest, it.engine.version, it.engine.restores) == (digest, 2, 1)
        assert (await it.ask()).status_code == 200


async def test_an_engine_that_does_not_come_up_again_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seedbed_server.gateway.engine_link._BACKOFF", (0.05,))
    async with running(tmp_path) as it:
        it.engine.starts_failing = 2
        await it.children[-1].die()
        await it.until(lambda: len(it.children) == 4 and it.gateway.link.state == "ready")


async def test_an_engine_that_never_came_up_fails_for_good_with_its_own_words(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.starts_failing = 1
    async with running(tmp_path, engine, ready=False) as it:
        await it.gateway.link.wait_settled()
        assert it.gateway.link.failed
        assert "config.json" in (it.gateway.link.problem or "")
        assert (await it.ask()).status_code == 503


async def test_a_store_of_another_base_is_refused_with_both_digests(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    other = FakeEngine()
    other.base = bytes(32)
    async with running(tmp_path, other, ready=False) as it:
        await it.gateway.link.wait_settled()
        problem = it.gateway.link.problem or ""
        assert it.gateway.link.failed
        assert bytes(32).hex() in problem
        assert FakeEngine().base.hex() in problem


async def test_weights_that_the_journal_does_not_make_are_never_served(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        await it.population()

    class Drifting(FakeEngine):
        def _step(self, record: pb.UpdateRecord) -> None:
            super()._step(record)
            self.weights = self.weights[::-1]

    async with running(tmp_path, Drifting(), ready=False) as it:
        await it.gateway.link.wait_settled()
        assert it.gateway.link.failed
        assert (await it.ask()).status_code == 503
        assert "digest" in (it.gateway.link.problem or "")


async def test_the_population_in_memory_is_the_one_in_the_store(tmp_path: Path) -> None:
    from seedbed_server.gateway.ledger import load_population

    async with running(tmp_path, episodes_per_member=5) as it:
        answers = await asyncio.gather(*(it.ask(seedbed={"group": f"g{i % 3}"}) for i in range(24)))
        ids = [answer.json()["seedbed"] for answer in answers]
        await asyncio.gather(
            *(it.reward(episode_id=about["episode_id"], reward=i / 7) for i, about in enumerate(ids[:12])),
            *(
                it.reward(completion_id=about["completion_id"], reward=i / 3)
                for i, about in enumerate(ids[6:15])
            ),
            it.ask("overflow"),
        )
        await it.gateway.leases.records.settled()
        assert await it.gateway.store.read(load_population) == it.gateway.leases.population


async def test_float32_multipliers_survive_the_record(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        await it.population([0.1, 0.7, 0.2, 0.9])
        value = it.engine.applied[0].matrix_multiplier
        assert struct.unpack("<f", struct.pack("<f", value))[0] == value


def test_a_lease_is_handed_out_by_one_object_alone() -> None:
    assert {"Lease", "Leases", "Wish"} <= set(leases_module.__all__)
