"""Weights carried from one server to others, and starts from damaged snapshots: `./run accept versions`.

On bfloat16 with stochastic rounding, whose bits go by the version: a lineage under other numbers would have
another digest. About ten engine starts.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from tests.e2e.commands import SCORED, live_logprobs, seedbed
from tests.e2e.served import Served
from tests.reference.client import Job, reference_logprobs

pytestmark = pytest.mark.engine

MODEL = "toy-llama"


def _serve(model: Path, folder: Path, **settings: object) -> Served:
    folder.mkdir(exist_ok=True)
    return Served(model, folder, population_size=2, sigma=0.02, alpha=0.05, dtype="bfloat16", **settings)


@pytest.fixture(scope="module")
def model(toy_folder: Callable[..., Path]) -> Path:
    return toy_folder("llama", dtype="bfloat16")


@pytest.fixture(scope="module")
def origin(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A store with the lineage 1, 2, 3, 8, 9, at version 9."""
    server = _serve(model, tmp_path_factory.mktemp("origin"), snapshot_every=2, snapshot_keep=9)
    try:
        server.start()
        server.learn(6)
        assert seedbed("rollback", "--to", 3, "--url", server.url).returncode == 0
        server.learn(2)
        server.wait_until(lambda: server.status()["snapshot"] in (8, 9), 60)
        yield server
    finally:
        server.end()


def test_a_start_passes_over_damaged_snapshots_and_has_an_equal_digest(origin: Served) -> None:
    before, root = origin.status(), origin.folder / "store.sqlite.snapshots"
    # Those on the lineage 1, 2, 3, 8, 9; others are not looked at.
    on_the_way = [
        path for path in (root / "v00000002", root / "v00000008", root / "v00000009") if path.exists()
    ]
    assert len(on_the_way) >= 2
    origin.kill()
    weights = on_the_way[-1] / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    for folder in on_the_way[:-1]:
        (folder / "model.safetensors").write_bytes(b"")
    (root / ".v00000010.partial-1").mkdir()
    origin.start()
    after = origin.status()
    assert (after["version"], after["digest"]) == (before["version"], before["digest"])
    names = {path.name for path in root.iterdir()}
    for folder in (*on_the_way, root / "v00000010.partial-1"):
        assert f"{folder.name}.aside-1" in names
        assert folder.name not in names
    assert origin.status()["snapshot"] in (4, 6)


def test_a_server_that_is_killed_in_a_rollback_finishes_it_or_never_began(origin: Served) -> None:
    """Gateway and engine at once, a moment after it was asked for."""
    before = origin.status()
    with origin.http() as client:
        digests = {u["version"]: u["digest"] for u in client.get("/v1/updates").json()["data"]}
    asked = threading.Thread(
        target=lambda: seedbed("rollback", "--to", 8, "--url", origin.url, "--reason", "a kill")
    )
    asked.start()
    # Until the record is on disk, or thereabouts.
    origin.wait_until(lambda: _records(origin) > before["version"], 60)
    engine = psutil.Process(origin.engine_pid)
    origin.kill()
    engine.kill()
    asked.join()
    origin.start()
    origin.wait_until(lambda: origin.status()["version"] == before["version"] + 1, 60)
    assert origin.status()["digest"] == digests[8]
    origin.learn(1)
    verified = origin.status()
    assert verified["version"] == before["version"] + 2


def _records(server: Served) -> int:
    with sqlite3.connect(f"file:{server.store}?mode=ro", uri=True) as store:
        return int(store.execute("SELECT COUNT(*) FROM journal").fetchone()[0])


@pytest.fixture(scope="module")
def adaptation(origin: Served, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """An adaptation of what was served, and what the server said of itself."""
    status = {**origin.status(), "logprobs": live_logprobs(origin, MODEL)}
    assert origin.interrupt() == 0
    file = tmp_path_factory.mktemp("adaptation") / "nine.adaptation"
    done = seedbed("export", "--store", origin.store, "--kind", "adaptation", "--to", file)
    assert done.returncode == 0, done.stderr
    return file, status


def test_two_servers_fork_from_one_adaptation_with_equal_digests(
    adaptation: tuple[Path, dict[str, object]], model: Path, tmp_path: Path
) -> None:
    file, status = adaptation
    digests = []
    for run_seed in (1, 2):
        folder = tmp_path / f"fork-{run_seed}"
        folder.mkdir()
        store = folder / "store.sqlite"
        done = seedbed("import", "--adaptation", file, "--model", model, "--store", store)
        assert done.returncode == 0, done.stderr
        assert str(status["digest"]) in done.stdout
        assert [path.name for path in folder.iterdir()] == ["store.sqlite"]
        assert seedbed("journal", "verify", "--store", store).returncode == 0
        fork = _serve(model, folder, run_seed=run_seed)
        try:
            fork.start()
            now = fork.status()
            assert (now["version"], now["digest"]) == (status["version"], status["digest"])
            assert live_logprobs(fork, MODEL) == pytest.approx(status["logprobs"], abs=1e-4)
            fork.learn(1)
            digests.append(fork.status()["digest"])
            assert fork.status()["version"] == int(str(status["version"])) + 1
            assert seedbed("rollback", "--to", 3, "--url", fork.url).returncode == 0
        finally:
            fork.end()
    assert digests[0] != digests[1], "another run seed explores other members"


def test_an_import_on_another_base_is_refused_with_both_digests_and_leaves_nothing(
    adaptation: tuple[Path, dict[str, object]], toy_folder: Callable[..., Path], tmp_path: Path
) -> None:
    file, _ = adaptation
    other = toy_folder("llama", dtype="bfloat16", seed=7)
    place = tmp_path / "place"
    place.mkdir()
    done = seedbed("import", "--adaptation", file, "--model", other, "--store", place / "store.sqlite")
    assert done.returncode == 3
    assert "base_digest" in done.stderr
    assert len(set(re.findall("[0-9a-f]{64}", done.stderr))) == 2
    assert list(place.iterdir()) == []


def test_base_and_difference_make_the_exported_folder(
    adaptation: tuple[Path, dict[str, object]], origin: Served, model: Path, tmp_path: Path
) -> None:
    _, status = adaptation
    for kind, target in (("folder", tmp_path / "folder"), ("difference", tmp_path / "moved.safetensors")):
        done = seedbed("export", "--store", origin.store, "--model", model, "--kind", kind, "--to", target)
        assert done.returncode == 0, done.stderr
        assert str(status["digest"]) in done.stdout
    note = json.loads((tmp_path / "folder" / "seedbed.json").read_text())
    assert note["digest"] == status["digest"]
    base, whole = load_file(model / "model.safetensors"), load_file(tmp_path / "folder" / "model.safetensors")
    moved = load_file(tmp_path / "moved.safetensors")
    assert set(moved) == set(whole)
    for name, weight in whole.items():
        assert torch.equal((base[name].float() + moved[name]).to(torch.bfloat16), weight), name
    assert any(bool(step.any()) for step in moved.values())
    (scored,) = reference_logprobs(tmp_path / "folder", [Job(SCORED)], dtype="bfloat16")
    assert len(scored.logprobs) == len(SCORED)
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "moved.safetensors"}
