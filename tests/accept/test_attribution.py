"""Attribution with mirrored members, whose pairs share a seed, and several crowds one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.accept.clients.crowd import TOLERANCE, examine, readable_toy
from tests.e2e.served import Served

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def mirrored(toy_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("mirrored")
    server = Served(
        readable_toy(toy_folder("qwen3"), folder / "toy"),
        folder,
        population_size=16,
        episodes_per_member=100_000,
        sampling="mirrored",
        sigma=0.01,
        sigma_schedule="constant",
    )
    try:
        server.start()
        yield server
    finally:
        server.end()


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_every_answer_was_made_by_the_member_on_record(mirrored: Served, seed: int) -> None:
    findings = examine(mirrored, episodes=400, turns=3, tokens=10, at_once=64, seed=seed, timeout=900)
    completions = findings.completions
    assert len(completions) == 1200
    print(f"largest distance: {findings.worst:.2e}; confused: {findings.confused}; faults: {findings.faults}")
    assert [turn for turn in completions if turn["distance"] > TOLERANCE] == []
    assert findings.confused <= 0.05 * len(completions)
    assert not findings.results.problems, "\n".join(findings.results.problems)
