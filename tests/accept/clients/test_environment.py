"""The clients are those that users have, not those that SGLang pins."""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import version

from tests.accept.clients.environment import FOLDER, REQUIREMENTS, python_of_clients

PROGRAM = """
import importlib.metadata as m, importlib.util as u, json
names, others = ["openai", "langchain-openai", "openai-agents", "litellm"], ["sglang", "torch"]
print(json.dumps([{n: m.version(n) for n in names}, [u.find_spec(n) is not None for n in others]]))
"""


def test_the_environment_has_the_newest_clients_and_nothing_of_the_server() -> None:
    python = python_of_clients()
    assert python.is_relative_to(FOLDER)
    done = subprocess.run([python, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    versions, leaked = json.loads(done.stdout)
    assert leaked == [False, False]
    assert tuple(map(int, versions["openai"].split(".")[:2])) > tuple(
        map(int, version("openai").split(".")[:2])
    ), "the newest openai package is not newer than the one that SGLang pins"
    listed = [line for line in REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    assert all(set(line) <= set("abcdefghijklmnopqrstuvwxyz-") for line in listed), "no pins here"
