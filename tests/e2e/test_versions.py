"""Versions on a whole server: thirty updates, a rollback, and an export. Two engine starts; what needs more
is in tests/accept/test_versions.py.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.commands import SCORED, live_logprobs, seedbed
from tests.e2e.served import Served
from tests.reference.client import Job, reference_logprobs

pytestmark = pytest.mark.engine

UPDATES, BACK = 30, 12


@pytest.fixture(scope="module")
def learned(toy_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server at version 30 that takes a snapshot every 5 updates."""
    server = Served(
        toy_folder("llama"),
        tmp_path_factory.mktemp("learned"),
        population_size=2,
        sigma=0.02,
        alpha=0.05,
        snapshot_every=5,
        snapshot_keep=1,
    )
    try:
        server.start()
        server.learn(UPDATES)
        yield server
    finally:
        server.end()


def test_a_rollback_from_version_30_to_12_has_the_digest_and_the_answers_of_12(learned: Served) -> None:
    with learned.http() as client:
        digests = {u["version"]: u["digest"] for u in client.get("/v1/updates").json()["data"]}
    before = live_logprobs(learned, "toy-llama")
    stray = learned.ask().seedbed
    answer = seedbed("rollback", "--to", BACK, "--url", learned.url, "--reason", "a test")
    assert answer.returncode == 0, answer.stderr
    assert f"version {UPDATES + 1} has the weights of version {BACK}" in answer.stdout
    status = learned.status()
    assert (status["version"], status["digest"]) == (UPDATES + 1, digests[BACK])
    assert live_logprobs(learned, "toy-llama") != before
    about = learned.ask(extra_body={"seedbed": {"episode_id": stray["episode_id"]}}).seedbed
    assert (about["member"], about["seed"]) == (stray["member"], stray["seed"]), "episodes go on"
    fresh = learned.ask().seedbed
    assert fresh["version"] == UPDATES + 1
    assert fresh["population"] > stray["population"]
    learned.learn(1)
    assert learned.status()["version"] == UPDATES + 2


def test_snapshots_are_ordinary_folders_that_say_what_they_are(learned: Served) -> None:
    root = learned.folder / "store.sqlite.snapshots"
    learned.wait_until(lambda: learned.status()["snapshot"] == UPDATES, 60)
    names = sorted(path.name for path in root.iterdir())
    assert f"v{UPDATES:08d}" in names
    assert 2 <= len(names) <= 5
    for name in names:
        note = json.loads((root / name / "seedbed.json").read_text())
        assert name == f"v{note['version']:08d}"
        assert (root / name / "config.json").exists()


def test_an_exported_folder_gives_the_servers_log_probabilities_in_transformers(
    learned: Served, tmp_path: Path
) -> None:
    status, served = learned.status(), live_logprobs(learned, "toy-llama")
    assert learned.interrupt() == 0
    verified = seedbed("journal", "verify", "--store", learned.store)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    folder, file = tmp_path / "folder", tmp_path / "toy.adaptation"
    done = seedbed(
        "export", "--store", learned.store, "--model", learned.model, "--kind", "folder", "--to", folder
    )
    assert done.returncode == 0, done.stderr
    assert status["digest"] in done.stdout
    (scored,) = reference_logprobs(folder, [Job(SCORED)])
    pairs = zip(served, scored.logprobs[1:], strict=True)
    assert max(abs(x - y) for x, y in pairs if y is not None) <= 1e-4
    small = seedbed("export", "--store", learned.store, "--kind", "adaptation", "--to", file)
    assert small.returncode == 0, small.stderr
    assert status["digest"] in small.stdout
    assert file.stat().st_size < 3000
