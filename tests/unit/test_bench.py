"""The harness of the benchmarks: what a result may hold, what is written, and the list of benchmarks."""

from __future__ import annotations

import argparse
import io
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from bench.harness import Result, conditions, median_ratio, print_result, write_result
from bench.registry import BENCHES

ROOT = Path(__file__).resolve().parents[2]


def test_a_result_is_written_as_one_object(tmp_path: Path) -> None:
    result = Result("toy", conditions(model="m"), {"a_over_b": 1.5}, {"a": [1, 2]}, {"a_over_b": "a note"})
    path = tmp_path / "new" / "toy.json"
    write_result(result, path)
    found = json.loads(path.read_text())
    assert set(found) == {"bench", "conditions", "metrics", "samples"}
    assert (found["bench"], found["metrics"], found["samples"]) == ("toy", {"a_over_b": 1.5}, {"a": [1, 2]})
    assert {"cpu", "cores", "revision", "versions", "model"} <= set(found["conditions"])
    assert found["conditions"]["versions"]["torch"]
    assert [p.name for p in path.parent.iterdir()] == ["toy.json"]


def test_a_result_is_printed_with_its_notes() -> None:
    out = io.StringIO()
    print_result(
        Result("toy", {}, {"x": 0.123456, "y": 12345.6}, {}, {"x": "a note"}), Console(file=out, width=120)
    )
    for text in ("bench toy", "0.1235", "12,346", "a note"):
        assert text in out.getvalue()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_none_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"metrics\.x: .* is not finite; leave out what was not measured"):
        Result("toy", {}, {"x": value}, {})


def test_the_ratio_is_that_of_single_turns() -> None:
    """Both sides were ten times slower in one turn; a ratio of medians would mix the turns."""
    assert median_ratio([10, 1, 12], [20, 2, 16]) == 0.5
    with pytest.raises(ValueError, match="shorter"):
        median_ratio([1, 2], [1])


@pytest.mark.parametrize("name", BENCHES)
def test_every_benchmark_can_be_loaded(name: str) -> None:
    bench = BENCHES[name].load()
    bench.add_arguments(argparse.ArgumentParser())
    assert callable(bench.run)


def test_an_unknown_benchmark_is_refused_by_name() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "nothing"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "nothing" in done.stderr
    assert "engine" in done.stderr
