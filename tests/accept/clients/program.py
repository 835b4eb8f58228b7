"""Runs one of the programs in the environment of the clients, and reads the facts that it prints."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.accept.clients.environment import python_of_clients

__all__ = ["Programs", "Results", "run_program"]

PROGRAMS = Path(__file__).with_name("programs")


@dataclass(frozen=True)
class Results:
    """What the cases of a program found, by the name of the case."""

    program: str
    cases: dict[str, dict[str, Any]]

    def facts(self, case: str) -> Any:
        """The facts of a case. Fails with the traceback of the program where there are none."""
        found = self.cases[case]
        assert "facts" in found, f"{self.program}, {case}:\n{found['failed']}"
        return found["facts"]

    @property
    def problems(self) -> list[str]:
        """What no strict reader would take, of all cases."""
        return [
            f"{self.program}, {case}: {problem}"
            for case, found in self.cases.items()
            for problem in found["problems"]
        ]

    @property
    def looked_at(self) -> tuple[int, int]:
        """How many bodies and events were validated."""
        found = self.cases.values()
        return sum(f["bodies"] for f in found), sum(f["events"] for f in found)


def run_program(
    program: str,
    url: str,
    model: str,
    *,
    only: tuple[str, ...] = (),
    options: dict[str, Any] | None = None,
    timeout: float = 600.0,
) -> Results:
    """Runs `programs/<program>.py` against a server; `only` names cases.

    Raises AssertionError if it ended early, and subprocess.TimeoutExpired after `timeout` seconds.
    """
    setting = {"url": url, "model": model, "only": only, "options": options or {}}
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SEEDBED_", "SGLANG_", "OPENAI_", "PYTHONPATH", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        [str(python_of_clients()), str(PROGRAMS / f"{program}.py"), json.dumps(setting)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{program} ended with code {done.returncode}:\n{done.stderr[-4000:]}"
    return Results(program, json.loads(done.stdout.rstrip().rpartition("\n")[2]))


class Programs:
    """The programs against one server; each is run once for each set of options."""

    def __init__(self, url: str, model: str) -> None:
        self._url, self._model = url, model
        self._done: dict[str, Results] = {}

    def __call__(self, program: str, *, only: tuple[str, ...] = (), **options: object) -> Results:
        """What a program found; `only` names cases."""
        key = json.dumps([program, only, options], sort_keys=True)
        if key not in self._done:
            self._done[key] = run_program(program, self._url, self._model, only=only, options=options)
        return self._done[key]
