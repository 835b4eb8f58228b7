"""Runs Schemathesis against a server and its own OpenAPI document."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.accept.clients.environment import python_of_clients

__all__ = ["Verdict", "check_document"]


CONFIGURATION = Path(__file__).with_name("schemathesis.toml")


@dataclass(frozen=True)
class Verdict:
    """What came of it: the exit code, what was printed, and the statuses of all answers."""

    code: int
    output: str
    answers: list[tuple[str, str, int]]

    @property
    def server_errors(self) -> list[tuple[str, str, int]]:
        return [answer for answer in self.answers if answer[2] >= 500]


def check_document(url: str, folder: Path, *, seconds: int, seed: int = 1) -> Verdict:
    """All checks, all phases, `seconds` long."""
    report = folder / "answers.har"
    done = subprocess.run(
        [
            str(python_of_clients().with_name("schemathesis")),
            *("--config-file", str(CONFIGURATION)),
            *("run", f"{url}/openapi.json", "--checks", "all", "--mode", "all"),
            # Closing an episode with DELETE ends it; what became of it can still be read and rewarded.
            *("--exclude-checks", "use_after_free"),
            *("--max-time", str(seconds), "--seed", str(seed), "--workers", "1"),
            # Its warnings are hints on coverage, such as that most random ids are not found.
            *("--continue-on-failure", "--request-timeout", "60", "--warnings", "off"),
            *("--report", "har", "--report-har-path", str(report)),
            # Hypothesis' complaints of slow or large examples, which say nothing of the server.
            "--suppress-health-check=all",
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds + 180,
        check=False,
    )
    return Verdict(done.returncode, done.stdout + done.stderr, _answers(report))


def _answers(report: Path) -> list[tuple[str, str, int]]:
    entries: list[dict[str, Any]] = (
        json.loads(report.read_text())["log"]["entries"] if report.exists() else []
    )
    return [(e["request"]["method"], e["request"]["url"], e["response"]["status"]) for e in entries]
