"""Asks `tests.reference.materialised`, in another process, what the right log-probabilities are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.reference.noise import Update

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Job", "Scored", "Update", "reference_logprobs"]

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Job:
    """One sequence and the weights that are to score it.

    Attributes:
        tokens: the whole sequence, prompt and answer.
        seed, sigma: the member; a sigma of 0 is the live model.
        updates: applied on the base first, in this order.
    """

    tokens: tuple[int, ...]
    seed: int = 0
    sigma: float = 0.0
    updates: tuple[Update, ...] = ()


@dataclass(frozen=True)
class Scored:
    """The answer for one job, an entry for every position.

    Attributes:
        logprobs: of the token at a position given those before it; None for the first one.
        greedy: the most probable token after a position.
        margins: how much more probable it is than the next one (difference of log-probabilities).
    """

    logprobs: tuple[float | None, ...]
    greedy: tuple[int, ...]
    margins: tuple[float, ...]


def reference_logprobs(
    folder: Path | str,
    jobs: Sequence[Job],
    *,
    dtype: str = "float32",
    exclude: Sequence[str] = (),
    timeout: float = 300.0,
) -> list[Scored]:
    """Scores every job in a fresh process.

    Args:
        folder: a Hugging Face folder.
        dtype: the live dtype, to which weights and updates are rounded; the computation is float32.
        exclude: name patterns of parameters that take no part.
        timeout: seconds.

    Raises:
        RuntimeError: the program failed; the message has the end of what it printed.
    """
    distinct = {job: i for i, job in enumerate(dict.fromkeys(jobs))}
    request = {
        "folder": str(folder),
        "dtype": dtype,
        "exclude": list(exclude),
        "jobs": [asdict(job) for job in distinct],
    }
    with tempfile.TemporaryDirectory(prefix="seedbed-reference-") as place:
        source, target = Path(place, "jobs.json"), Path(place, "result.json")
        source.write_text(json.dumps(request))
        done = subprocess.run(
            [sys.executable, "-m", "tests.reference.materialised", str(source), str(target)],
            cwd=ROOT,
            env={k: v for k, v in os.environ.items() if not k.startswith(("SEEDBED_", "SGLANG_"))},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"the reference failed with code {done.returncode}:\n{done.stderr[-4000:]}")
        scored = [
            Scored(tuple(r["logprobs"]), tuple(r["greedy"]), tuple(r["margins"]))
            for r in json.loads(target.read_text())
        ]
    return [scored[distinct[job]] for job in jobs]
