"""The command line as an operator runs it, and the live model's log-probabilities as a client sees them."""

import subprocess
import sys
from typing import Any

from tests.e2e.served import Served

__all__ = ["SCORED", "live_logprobs", "seedbed"]

SECONDS = 400
SCORED = tuple(range(5, 45))
"""Token ids that are scored; any would do."""


def seedbed(*arguments: object) -> subprocess.CompletedProcess[str]:
    program = "from seedbed_server.launch import main; main()"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def live_logprobs(server: Served, model: str) -> list[float]:
    """Of every token of `SCORED` after the first one, by the live weights."""
    with server.openai() as client:
        answer: Any = client.completions.create(
            model=f"{model}:live", prompt=list(SCORED), echo=True, logprobs=1, max_tokens=1, temperature=0
        )
    values = answer.choices[0].logprobs.token_logprobs
    return [float(value) for value in values[1 : len(SCORED)]]
