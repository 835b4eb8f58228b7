"""Going back to an older version, snapshots on the way, and what is left when something dies in between."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.v1 import engine_pb2 as pb
from seedbed_server.gateway import guards
from seedbed_server.store import Store, journal, snapshots
from seedbed_server.store.lineage import lineage, updates_in_lineage
from tests.unit.fake_engine import FakeEngine
from tests.unit.gateway_server import Running, running


async def _digests(it: Running) -> list[str]:
    data = (await it.http.get("/v1/updates")).json()["data"]
    return [it.engine.start.hex(), *(update["digest"] for update in data)]


async def _learn(it: Running, updates: int) -> None:
    for _ in range(updates):
        version = it.gateway.updates.version
        await it.population()
        await it.until(lambda version=version: it.gateway.updates.version == version + 1)  # type: ignore[misc]


async def _roll_back(it: Running, to_version: int) -> dict[str, object]:
    response = await it.http.post("/v1/learning/rollback", json={"to_version": to_version})
    assert response.status_code == 200, response.text
    answer: dict[str, object] = response.json()
    return answer


async def test_a_rollback_is_a_new_version_with_an_old_digest_and_learning_goes_on_from_it(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running(tmp_path, engine) as it:
        await _learn(it, 5)
        digests = await _digests(it)
        before = it.gateway.leases.population
        assert before is not None
        stray = (await it.ask()).json()["seedbed"]
        answer = await _roll_back(it, 2)
        assert answer == {
            "object": "rollback", "status": "done", "version": 6, "to_version": 2, "digest": digests[2],
            "reason": "requested",
        }  # fmt: skip
        assert (engine.version, engine.digest.hex()) == (6, digests[2])
        status = await it.status()
        assert (status["version"], status["digest"]) == (6, digests[2])
        assert status["last_population"]["id"] == before.number
        assert status["last_population"]["outcome"] == "rollback"
        after = it.gateway.leases.population
        assert after is not None
        assert (after.number, after.version) == (before.number + 1, 6)
        assert {m.seed for m in after.members}.isdisjoint(m.seed for m in before.members)
        late = (await it.reward(episode_id=stray["episode_id"], reward=1.0)).json()
        assert late["result"] in ("late", "accepted")
        await _learn(it, 2)
        assert engine.version == 8
        update = (await it.http.get("/v1/updates", params={"after": 5, "limit": 1})).json()["data"][0]
        assert (update["kind"], update["to_version"], update["reward_mean"]) == ("rollback", 2, None)
        digest = engine.digest
    async with running(tmp_path, engine) as it:
        assert (it.gateway.updates.version, engine.digest) == (8, digest)
    with Store(tmp_path / "store.sqlite") as store:
        rows = store.read_now(journal.verified)
        assert [row.version for row in lineage(rows, 8)] == [1, 2, 7, 8]
        assert store.read_now(lambda c: updates_in_lineage(c, 8)) == 4


async def test_asking_for_the_same_rollback_again_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        await _learn(it, 3)
        first, second = await asyncio.gather(_roll_back(it, 1), _roll_back(it, 1))
        assert first == second == await _roll_back(it, 1)
        assert it.gateway.updates.version == 4
        await _learn(it, 1)
        assert it.gateway.updates.version == 5
        assert (await _roll_back(it, 1))["version"] == 6


@pytest.mark.parametrize(
    ("sent", "param", "said"),
    [
        ({"to_version": 3}, "to_version", "not older than version 3"),
        ({"to_version": 17}, "to_version", "0 to 2"),
        ({"to_version": -1}, "to_version", "-1"),
        ({"to_version": 1.5}, "to_version", "1.5"),
        ({"to_version": True}, "to_version", "True"),
        ({}, "to_version", "to_version"),
        ({"to_version": 1, "force": True}, "force", "force"),
        ({"to_version": 1, "reason": "x" * 501}, "reason", "reason"),
    ],
)
async def test_a_rollback_that_cannot_be_is_refused_and_changes_nothing(
    tmp_path: Path, sent: dict[str, object], param: str, said: str
) -> None:
    async with running(tmp_path) as it:
        await _learn(it, 3)
        response = await it.http.post("/v1/learning/rollback", json=sent)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == param
        assert said in response.json()["error"]["message"]
        await _learn(it, 1)
        assert it.gateway.updates.version == 4
        assert it.engine.restores == 0


async def test_requests_wait_for_a_rollback_and_one_that_takes_long_answers_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seedbed_server.gateway.rollback_routes.SECONDS", 0.3)
    async with running(tmp_path) as it:
        await _learn(it, 2)
        it.engine.restore_gate.clear()
        response = await it.http.post("/v1/learning/rollback", json={"to_version": 1})
        assert (response.status_code, response.json()["status"]) == (202, "pending")
        waiting = asyncio.create_task(it.ask())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        other = await it.http.post("/v1/learning/rollback", json={"to_version": 0})
        assert (other.status_code, int(other.headers["retry-after"])) == (429, 5)
        assert "rollback to 1 is on its way" in other.json()["error"]["message"]
        it.engine.restore_gate.set()
        answer = (await waiting).json()["seedbed"]
        assert (answer["version"], it.gateway.updates.version) == (3, 3)


async def test_a_rollback_waits_for_the_update_before_it_and_gives_up_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seedbed_server.gateway.rollback_routes.SECONDS", 0.3)
    async with running(tmp_path) as it:
        await _learn(it, 1)
        it.engine.apply_gate.clear()
        await it.population_posted()
        response = await it.http.post("/v1/learning/rollback", json={"to_version": 0})
        assert response.status_code == 429
        assert 0 < int(response.headers["retry-after"]) <= 120
        it.engine.apply_gate.set()
        await it.until(lambda: it.gateway.updates.version == 2)
        await _learn(it, 1)
        assert it.engine.restores == 0
        it.engine.apply_gate.clear()
        await it.population_posted()
        waiting = asyncio.create_task(_roll_back(it, 2))
        await asyncio.sleep(0.05)
        it.engine.apply_gate.set()
        assert (await waiting)["version"] == 5


async def test_a_rollback_that_was_journalled_and_not_made_is_made_after_a_restart(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running(tmp_path, engine) as it:
        await _learn(it, 3)
        one = (await _digests(it))[1]
        engine.restore_gate.clear()
        waiting = asyncio.create_task(it.http.post("/v1/learning/rollback", json={"to_version": 1}))
        await it.until(lambda: engine.restores == 1)
        population = it.gateway.leases.population
        assert population is not None
    waiting.cancel()
    engine.restore_gate.set()
    async with running(tmp_path, engine) as it:
        await it.until(lambda: it.gateway.updates.version == 4)
        assert (engine.version, engine.digest.hex()) == (4, one)
        following = it.gateway.leases.population
        assert following is not None
        assert (following.number, following.version) == (population.number + 1, 4)
        assert (await it.ask()).json()["seedbed"]["version"] == 4


async def test_an_engine_that_dies_during_a_rollback_is_replaced_and_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seedbed_server.gateway.engine_link._BACKOFF", (0.01,))
    async with running(tmp_path) as it:
        await _learn(it, 3)
        one = (await _digests(it))[1]
        it.engine.restore_gate.clear()
        waiting = asyncio.create_task(_roll_back(it, 1))
        await it.until(lambda: it.engine.restores == 1)
        it.engine.restore_gate.set()
        await it.children[-1].die()
        assert (await waiting)["digest"] == one
        assert (it.engine.version, it.engine.digest.hex()) == (4, one)


async def test_a_link_that_gives_the_engine_up_during_a_call_does_not_end_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its channel is closed under the call, which gRPC tells by a CancelledError."""
    monkeypatch.setattr("seedbed_server.gateway.engine_link._BACKOFF", (0.01,))
    async with running(tmp_path) as it:
        await _learn(it, 2)
        it.engine.apply_gate.clear()
        await it.population_posted()
        await it.until(lambda: it.engine.applications == 3)
        it.gateway.link.condemn("a test")
        await it.until(lambda: len(it.children) == 2)
        it.engine.apply_gate.set()
        await it.until(lambda: it.gateway.updates.version == 3, 30)
        it.engine.restore_gate.clear()
        waiting = asyncio.create_task(_roll_back(it, 1))
        await it.until(lambda: it.engine.restores == 2)
        it.gateway.link.condemn("a test")
        await it.until(lambda: len(it.children) == 3)
        it.engine.restore_gate.set()
        assert (await waiting)["version"] == 4


async def test_a_guard_that_asks_for_the_same_rollback_twice_pauses_instead(tmp_path: Path) -> None:
    async def alarm(it: Running) -> None:
        wanted = guards.Pause(1.0, "guard", "the control fell", roll_back_to=1)
        it.gateway.leases.paused = await it.gateway.store.write(lambda c: guards.pause(c, wanted))
        it.gateway.leases.poke()

    async with running(tmp_path) as it:
        await _learn(it, 3)
        await alarm(it)
        await it.until(lambda: it.gateway.updates.version == 4)
        await it.until(lambda: it.gateway.leases.paused is None)
        assert it.engine.digest.hex() == (await _digests(it))[1]
        await alarm(it)
        await it.until(
            lambda: it.gateway.leases.paused is not None and it.gateway.leases.paused.roll_back_to is None
        )
        assert (it.gateway.updates.version, it.engine.restores) == (4, 1)
        assert any("the control fell" in warning for warning in (await it.status())["warnings"])


async def test_schedules_go_back_with_the_weights(tmp_path: Path) -> None:
    settings = {"sigma": 0.03, "sigma_floor": 0.01, "sigma_schedule": "linear", "total_updates": 11}
    async with running(tmp_path, **settings) as it:
        sigmas = []
        for _ in range(4):
            population = it.gateway.leases.population
            assert population is not None
            sigmas.append(population.sigma)
            await _learn(it, 1)
        await _roll_back(it, 1)
        back = it.gateway.leases.population
        assert back is not None
        assert (back.version, back.sigma) == (5, sigmas[1])
        await _learn(it, 1)
        assert it.gateway.leases.population is not None
        assert it.gateway.leases.population.sigma == sigmas[2]


async def test_learning_that_has_halted_refuses_a_rollback(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        await _learn(it, 1)
        it.engine.fail_apply = [grpc.StatusCode.FAILED_PRECONDITION] * 3
        await it.population_posted()
        await it.until(lambda: it.gateway.leases.halted is not None, 20)
        response = await it.http.post("/v1/learning/rollback", json={"to_version": 0})
        assert (response.status_code, response.json()["error"]["code"]) == (503, "learning_halted")


# -- snapshots ---------------------------------------------------------------------------------------


def _good(folder: Path) -> list[int]:
    with Store(folder / "store.sqlite") as store:
        return [row.version for row in store.read_now(snapshots.good)]


async def _snapshot_of(it: Running, version: int) -> None:
    def taken() -> bool:
        newest = it.gateway.snapshots.newest
        return newest is not None and newest.version == version

    await it.until(taken)


async def test_snapshots_are_taken_pruned_and_shorten_the_way_back(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running(tmp_path, engine, snapshot_every=2, snapshot_keep=1) as it:
        for version in range(1, 9):
            await _learn(it, 1)
            if version % 2 == 0:
                await _snapshot_of(it, version)
        assert (await it.status())["snapshot"] == 8
        root = tmp_path / "store.sqlite.snapshots"
        kept = snapshots.kept([2, 4, 6, 8], 1)
        await it.until(lambda: sorted(p.name for p in root.iterdir()) == [f"v{v:08d}" for v in sorted(kept)])
        digests = await _digests(it)
    assert _good(tmp_path) == sorted(kept) == [2, 6, 8]
    async with running(tmp_path, engine, snapshot_every=0) as it:
        assert (engine.version, engine.restored_from[-1]) == (8, 8)
        for version, start in ((5, 2), (1, None), (7, 6), (8, 8)):
            await _roll_back(it, version)
            assert (engine.restored_from[-1], engine.digest.hex()) == (start, digests[version])
    async with running(tmp_path, engine, snapshot_every=0) as it:
        assert (engine.version, engine.digest.hex(), engine.restored_from[-1]) == (12, digests[8], 8)


def _damage(folder: Path) -> None:
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-3] ^= 16
    file.write_bytes(data)


async def test_damaged_and_half_written_snapshots_are_set_aside_and_an_older_one_is_taken(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running(tmp_path, engine, snapshot_every=1, snapshot_keep=9) as it:
        for version in (1, 2, 3, 4):
            await _learn(it, 1)
            await _snapshot_of(it, version)
        digest = engine.digest
    root = tmp_path / "store.sqlite.snapshots"
    _damage(root / "v00000004")
    (root / "v00000003" / "model.safetensors").unlink()
    (root / ".v00000005.partial-77").mkdir()
    (root / "v00000009").mkdir()
    async with running(tmp_path, engine, snapshot_every=0) as it:
        assert (engine.version, engine.digest, engine.restored_from[-1]) == (4, digest, 2)
        assert (await it.status())["snapshot"] == 2
        names = sorted(p.name for p in root.iterdir())
        assert names == [
            "v00000001", "v00000002", "v00000003.aside-1", "v00000004.aside-1",
            "v00000005.partial-77.aside-1", "v00000009.aside-1",
        ]  # fmt: skip
    assert _good(tmp_path) == [1, 2]
    _damage(root / "v00000001")
    _damage(root / "v00000002")
    async with running(tmp_path, engine, snapshot_every=0) as it:
        assert (engine.version, engine.digest, engine.restored_from[-1]) == (4, digest, None)


class _Rotten(FakeEngine):
    """Its disk flips a bit after the snapshot was checked and before it is loaded."""

    async def Restore(self, request: pb.RestoreRequest, context: Any) -> pb.RestoreResponse:
        if request.folder:
            _damage(Path(request.folder))
        return await super().Restore(request, context)


async def test_a_snapshot_that_rots_while_it_is_loaded_costs_a_start_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seedbed_server.gateway.engine_link._BACKOFF", (0.01,))
    async with running(tmp_path, snapshot_every=2) as it:
        await _learn(it, 2)
        await _snapshot_of(it, 2)
        await _learn(it, 1)
        digests = await _digests(it)
    engine = _Rotten()
    async with running(tmp_path, engine) as it:
        assert (engine.version, engine.digest.hex()) == (3, digests[3])
        assert engine.restored_from == [2, None]
        assert len(it.children) == 2
    assert _good(tmp_path) == []


async def test_a_snapshot_that_rots_during_a_rollback_is_gone_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seedbed_server.gateway.engine_link._BACKOFF", (0.01,))
    engine = _Rotten()
    async with running(tmp_path, engine, snapshot_every=2) as it:
        await _learn(it, 2)
        await _snapshot_of(it, 2)
        await _learn(it, 1)
        digests = await _digests(it)
        assert (await _roll_back(it, 2))["digest"] == digests[2]
        assert engine.digest.hex() == digests[2]
        assert engine.restored_from[0] == 2
        assert set(engine.restored_from[1:]) == {None}


async def test_a_whole_snapshot_that_never_got_on_record_is_found_again(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running(tmp_path, engine, snapshot_every=2) as it:
        await _learn(it, 2)
        await _snapshot_of(it, 2)
    with Store(tmp_path / "store.sqlite") as store:
        store.submit(lambda c: c.exec_driver_sql("DELETE FROM snapshots")).result(10)
    async with running(tmp_path, engine) as it:
        assert engine.restored_from[-1] == 2
        assert (await it.status())["snapshot"] == 2


async def test_a_full_disk_is_a_warning_and_learning_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seedbed_server.gateway.snapshots.AGAIN_SECONDS", 0.05)
    async with running(tmp_path, snapshot_every=1) as it:
        it.engine.fail_snapshot = "folder: no bytes free; free some space"
        await _learn(it, 3)
        await it.until(lambda: it.gateway.snapshots.problem is not None)
        assert any("free some space" in warning for warning in (await it.status())["warnings"])
        assert (await it.ask()).status_code == 200
        it.engine.fail_snapshot = ""
        await _snapshot_of(it, 3)
        assert not any("free some space" in warning for warning in (await it.status())["warnings"])


async def test_a_snapshot_that_an_update_overtakes_is_no_trouble(tmp_path: Path) -> None:
    async with running(tmp_path, snapshot_every=1) as it:
        it.engine.fail_snapshot = "version: 1 is wanted and 2 is live; take the one that is live"
        await _learn(it, 1)
        await asyncio.sleep(0.2)
        assert it.gateway.snapshots.problem is None
        it.engine.fail_snapshot = ""
        await _learn(it, 1)
        await _snapshot_of(it, 2)


async def test_a_snapshot_that_cannot_be_pruned_stays_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError("a folder that is not ours")

    monkeypatch.setattr("seedbed_server.gateway.snapshots.remove", refuse)
    async with running(tmp_path, snapshot_every=1, snapshot_keep=1) as it:
        for version in (1, 2, 3, 4):
            await _learn(it, 1)
            await _snapshot_of(it, version)
        await it.until(lambda: it.gateway.snapshots.problem is not None)
    assert 4 in _good(tmp_path)
    assert (tmp_path / "store.sqlite.snapshots" / "v00000004").is_dir()


async def test_a_journal_that_is_damaged_is_not_served(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        await _learn(it, 2)
    with Store(tmp_path / "store.sqlite") as store:
        store.submit(
            lambda c: c.exec_driver_sql("UPDATE journal SET digest = zeroblob(32) WHERE version = 1")
        ).result(10)
    async with running(tmp_path, ready=False) as it:
        await it.gateway.link.wait_settled()
        assert "version 2: from_digest" in (it.gateway.link.problem or "")
        assert (await it.ask()).status_code == 503


@given(st.integers(1, 40), st.integers(1, 5), st.lists(st.integers(1, 60), max_size=60))
def test_few_snapshots_are_kept_and_the_newest_always(first: int, newest: int, gaps: list[int]) -> None:
    versions, kept = [first], {first}
    for gap in gaps:
        versions.append(versions[-1] + gap)
        kept = snapshots.kept(kept | {versions[-1]}, newest)
        assert set(versions[-newest:]) <= kept
        assert len(kept) <= newest + (versions[-1] - versions[0]).bit_length()
        assert min(kept) == versions[0], "the oldest one of its distance stays"
