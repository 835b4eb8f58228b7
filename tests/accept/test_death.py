"""The engine dies while many clients read, on every route: `./run accept death`."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest

from tests.accept.clients.program import run_program
from tests.e2e.served import Served

pytestmark = pytest.mark.engine


def test_all_clients_get_a_clean_error_and_their_calls_work_again(
    toy_folder: Callable[..., Path], tmp_path: Path
) -> None:
    server = Served(toy_folder("llama"), tmp_path, population_size=4, sigma=0.02, alpha=0.05)
    try:
        server.start()
        server.learn(2)
        before, engine = server.status(), psutil.Process(server.engine_pid)
        flag = tmp_path / "begun"

        def kill() -> None:
            deadline = time.monotonic() + 120
            while not flag.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            engine.send_signal(signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        results = run_program(
            "death", server.url, "toy-llama", options={"flag": str(flag), "seconds": 400}, timeout=500
        )
        killer.join()
        found = results.facts("deaths")
        for name, stream in found["streams"].items():
            assert stream["read"] > 0, name
            assert stream["kind"] == "APIError", f"{name}: a broken connection instead of an error: {stream}"
            assert stream["code"] == "engine_unavailable", name
        assert (found["whole"]["status"], found["whole"]["code"]) == (503, "engine_unavailable")
        for failure in (found["whole"], *found["down"]):
            assert failure["status"] == 503
            assert 0 < int(failure["headers"]["retry-after"]) <= 120
        assert found["carried"]["id"]
        assert all(count > 100 for count in found["again"].values()), found["again"]
        assert not results.problems, "\n".join(results.problems)
        server.wait_until(lambda: server.status()["engine"] == "ready", 120)
        after = server.status()
        assert (after["version"], after["digest"]) == (before["version"], before["digest"])
        assert "seedbed_requests_in_flight 0.0" in httpx.get(f"{server.url}/metrics").text
    finally:
        server.end()
