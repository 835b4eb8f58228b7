"""Log-probabilities of many sequences under many members, with transformers and materialised weights alone.

    python -m tests.accept.clients.scores JOBS.json RESULT.npz

The jobs are `{"folder", "members": [[seed, signed sigma], ...], "sequences": [{"prompt": [...], "answer":
[...]}, ...]}`; the result has, for each sequence, an array of members x answer tokens. All sequences go
through each member's weights in batches, which is what makes thousands of them quick; rows are padded behind
their end, where nothing before can see it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Spoken", "score"]

ROOT = Path(__file__).resolve().parents[3]
BATCH = 32


@dataclass(frozen=True)
class Spoken:
    """Token ids of a prompt, and of the answer that is scored."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


def score(
    folder: Path, members: Sequence[tuple[int, float]], sequences: Sequence[Spoken], timeout: float = 600.0
) -> list[npt.NDArray[np.float64]]:
    """For each sequence the log-probabilities of its answer, members x tokens; in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="seedbed-scores-") as place:
        jobs, result = Path(place, "jobs.json"), Path(place, "result.npz")
        jobs.write_text(
            json.dumps(
                {"folder": str(folder), "members": members, "sequences": [asdict(s) for s in sequences]}
            )
        )
        done = subprocess.run(
            [sys.executable, "-m", "tests.accept.clients.scores", str(jobs), str(result)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        with np.load(result) as arrays:
            return [arrays[str(index)] for index in range(len(sequences))]


def _main(source: str, target: str) -> None:
    import torch

    from tests.reference.materialised import Materialised

    # Matrices this small gain nothing from a second thread, and threads wait for each other.
    torch.set_num_threads(1)
    jobs = json.loads(Path(source).read_text())
    twin = Materialised(jobs["folder"], "float32", [])
    state = twin.version([])
    sequences = jobs["sequences"]
    # Those of about one length share a batch.
    order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]["prompt"] + sequences[i]["answer"]))
    found: dict[int, list[Any]] = {index: [] for index in order}
    for seed, sigma in jobs["members"]:
        twin.become(state, seed, sigma)
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            whole = [sequences[i]["prompt"] + sequences[i]["answer"] for i in batch]
            longest = max(map(len, whole))
            ids = torch.tensor([tokens + [0] * (longest - len(tokens)) for tokens in whole])
            with torch.no_grad():
                hidden = twin.model.model(ids).last_hidden_state
                for row, index in enumerate(batch):
                    begin, end = len(sequences[index]["prompt"]), len(whole[row])
                    logits = twin.model.lm_head(hidden[row, begin - 1 : end - 1])
                    logprobs = torch.log_softmax(logits.double(), dim=-1)
                    answer = torch.tensor(sequences[index]["answer"])[:, None]
                    found[index].append(logprobs.gather(1, answer)[:, 0].numpy())
    np.savez(target, **{str(index): np.array(rows) for index, rows in found.items()})


if __name__ == "__main__":
    _main(*sys.argv[1:])
