"""The demo's children: ended in order, and never left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seedbed_agents.brevity import server
from seedbed_agents.brevity.options import Recipe
from seedbed_agents.brevity.run_directory import RunDirectory, open_run
from seedbed_agents.brevity.server import ServerError, last_lines, replay, serving

RECIPE = Recipe(model="toy", updates=1)
WAIT = 20.0


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    with open_run(RECIPE, tmp_path / "run") as opened:
        return opened


def stand_in(directory: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Puts a program of the test in the place of `seedbed`."""
    program = directory / "seedbed"
    program.write_text(f"#!{sys.executable}\nimport os, signal, sys, time\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setattr(server, "_command", lambda: str(program))


def ended(pid: int) -> bool:
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        state = Path(f"/proc/{pid}/stat")
        if state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False


def test_a_server_that_ends_at_once_is_reported_with_its_last_words(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, "print('no such model'); sys.exit(3)")
    with (
        pytest.raises(ServerError, match=r"(?s)code 3.*no such model"),
        serving(run, RECIPE, 0, lambda _: None),
    ):
        pass


def test_a_server_is_given_the_recipe_and_ended_when_the_demo_is_interrupted(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Ready(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()
print(sys.argv)
signal.signal(signal.SIGTERM, lambda *_: (print("in order"), sys.exit(0)))
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Ready).serve_forever()
"""
    stand_in(tmp_path, monkeypatch, body)
    heard: list[float] = []
    with contextlib.suppress(KeyboardInterrupt), serving(run, RECIPE, 0, heard.append) as started:
        assert started.base_url == f"http://127.0.0.1:{started.port}/v1"
        raise KeyboardInterrupt
    assert ended(started.process.pid)
    log = last_lines(started.log)
    assert "in order" in log
    assert f"'--store', '{run.store}'" in log
    assert "'--population-size', '16'" in log
    assert heard == sorted(heard)
    assert heard


def test_a_child_that_ignores_the_order_is_killed_in_time(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(
        tmp_path, monkeypatch, "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(600)"
    )
    monkeypatch.setattr(server, "STOP_SECONDS", 0.3)
    child = server._start([], run.path / "log")
    while "up" not in last_lines(run.path / "log"):
        time.sleep(0.02)
    server._stop(child)
    assert child.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("code", "equal"), [(0, True), (1, False), (3, None)])
def test_the_replay_is_equal_only_by_its_exit_code(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, equal: bool | None
) -> None:
    stand_in(tmp_path, monkeypatch, f"print('replayed'); sys.exit({code})")
    assert replay(run, RECIPE, lambda _: None) is equal
    assert "replayed" in last_lines(run.path / "replay.log")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent is gone")
def test_a_killed_demo_leaves_no_server(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, "time.sleep(600)")
    program = f"""
import time
from pathlib import Path
from seedbed_agents.brevity import server
server._command = lambda: {str(tmp_path / "seedbed")!r}
print(server._start([], Path({str(tmp_path / "log")!r})).pid, flush=True)
time.sleep(600)
"""
    demo = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert demo.stdout is not None
    child = int(demo.stdout.readline())
    demo.kill()
    demo.wait(WAIT)
    demo.stdout.close()
    assert ended(child)
