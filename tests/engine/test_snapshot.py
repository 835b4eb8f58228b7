"""Snapshots: ordinary Hugging Face folders, whole or not there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from tests.engine.client import Ask, Client, record_of
from tests.reference.client import Job, reference_logprobs


def test_transformers_loads_a_snapshot_and_gives_the_log_probabilities_of_the_engine(
    llama: Client, tmp_path: Path
) -> None:
    llama.update(record_of(1, {3: 100, 4: -90}))
    ask = Ask(tuple(range(5, 40)), 6, 0.04, tokens=10, prompt_logprobs=True)
    answer = llama.ask(ask)
    reply = llama.snapshot(str(tmp_path / "snapshot"))
    assert reply.bytes > 0
    (scored,) = reference_logprobs(tmp_path / "snapshot", [Job((*ask.prompt, *answer.ids), 6, 0.04)])
    given = (*answer.prompt_logprobs[1:], *answer.logprobs)
    pairs = zip(given, scored.logprobs[1:], strict=True)
    assert max(abs(x - y) for x, y in pairs if x is not None and y is not None) <= 1e-4
    note = json.loads((tmp_path / "snapshot" / "seedbed.json").read_text())
    assert note["version"] == 1
    assert note["digest"] == llama.state.digest.hex()
    assert {p.name for p in tmp_path.iterdir()} == {"snapshot"}


def test_an_engine_goes_on_from_a_snapshot_with_the_same_digest(llama: Client, tmp_path: Path) -> None:
    llama.update(record_of(1, {3: 100, 4: -90}))
    llama.snapshot(str(tmp_path / "one"))
    second = record_of(2, {5: 44})
    digest = llama.update(second).state.digest
    llama.restore()
    state = llama.restore([second], digest=digest, folder=str(tmp_path / "one"), version=1)
    assert (state.version, state.digest) == (2, digest)
    assert llama.measured_digest() == digest


def test_a_rollback_is_a_version_of_its_own_with_the_weights_of_an_older_one(
    llama: Client, tmp_path: Path
) -> None:
    first = record_of(1, {3: 100, 4: -90})
    one = llama.update(first).state.digest
    llama.snapshot(str(tmp_path / "one"), version=1)
    before = llama.update(record_of(2, {5: 44}))
    back = llama.restore(folder=str(tmp_path / "one"), version=1, digest=one, as_version=3)
    assert (back.version, back.digest) == (3, one)
    assert back.epoch > before.state.epoch
    # The next record makes version 4: its rounding goes by that, and a replay leaves 2 and 3 out.
    fourth = record_of(4, {6: 5}, stochastic=True)
    fourth.from_digest = one
    four = llama.update(fourth).state
    assert llama.restore([first, fourth], digest=four.digest).version == 4
    assert llama.measured_digest() == four.digest
    for wrong in ({"records": [fourth, first]}, {"records": [first, fourth], "as_version": 3}):
        with pytest.raises(grpc.RpcError) as caught:
            llama.restore(**wrong)  # type: ignore[arg-type]
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    with pytest.raises(grpc.RpcError, match="4 is live"):
        llama.snapshot(str(tmp_path / "other"), version=2)


def test_requests_and_updates_around_a_snapshot_are_answered(llama: Client, tmp_path: Path) -> None:
    """Requests go on meanwhile; an update waits, and the folder has the weights from before it."""
    first = llama.update(record_of(1, {3: 100, 4: -90})).state
    with ThreadPoolExecutor(8) as pool:
        asks = [pool.submit(llama.ask, Ask((5, 6, 7), 6, 0.04, tokens=60)) for _ in range(5)]
        folder = pool.submit(llama.snapshot, str(tmp_path / "one"), version=1)
        assert folder.result(120).state.digest == first.digest
        update = pool.submit(llama.update, record_of(2, {5: 44}))
        assert update.result(120).state.version == 2
        assert all(len(ask.result(120).ids) == 60 for ask in asks)
    assert json.loads((tmp_path / "one" / "seedbed.json").read_text())["digest"] == first.digest.hex()
    assert llama.restore(folder=str(tmp_path / "one"), version=1, digest=first.digest).version == 1


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 128 KiB; a toy model does not fit."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no right to mount a small disk here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_fails_the_snapshot_and_leaves_nothing(llama: Client, tiny_disk: Path) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        llama.snapshot(str(tiny_disk / "snapshot"))
    assert "free some space" in caught.value.details()
    assert list(tiny_disk.iterdir()) == []
    assert len(llama.ask(Ask((5, 6, 7))).ids) == 8


def test_a_folder_that_exists_or_has_no_parent_is_refused(llama: Client, tmp_path: Path) -> None:
    for folder, text in ((tmp_path, "exists already"), (tmp_path / "no" / "where", "make it first")):
        with pytest.raises(grpc.RpcError) as caught:
            llama.snapshot(str(folder))
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert str(folder.parent) in caught.value.details()
        assert text in caught.value.details()


def test_restoring_from_a_folder_of_another_model_changes_nothing(
    llama: Client, toy_folder: Callable[..., Path], tmp_path: Path
) -> None:
    before = llama.state
    llama.snapshot(str(tmp_path / "other"))
    note = json.loads((tmp_path / "other" / "seedbed.json").read_text())
    (tmp_path / "other" / "seedbed.json").write_text(json.dumps({**note, "base_digest": "00" * 32}))
    for folder, text in ((toy_folder("qwen2"), "no snapshot"), (tmp_path / "other", "base_digest")):
        with pytest.raises(grpc.RpcError, match=text):
            llama.restore(folder=str(folder))
    assert llama.state.digest == before.digest
    assert llama.measured_digest() == before.digest
    assert len(llama.ask(Ask((5, 6, 7))).ids) == 8
