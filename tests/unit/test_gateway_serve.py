"""What `seedbed serve` does before there is an engine, and what it finds of one that was left behind."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from seedbed_server.config import load_settings
from seedbed_server.engine.config import EngineConfig
from seedbed_server.gateway.child import ChildFactory, config_of
from seedbed_server.gateway.serve import serve
from seedbed_server.models import ModelSource
from seedbed_server.store import Store


def config(address: str) -> EngineConfig:
    return EngineConfig(model_path="/toy", model_name="toy", address=address)


def test_settings_reach_the_engine() -> None:
    settings = load_settings(
        dtype="float32", device="cpu", slots=8, context_length=256, scope="all-linear", exclude="a,b",
        rounding="nearest", hold_seconds=7,
    )  # fmt: skip
    made = config_of(settings, ModelSource("/m", "name", "folder"), "unix:/s")
    assert made == EngineConfig(
        model_path="/m", model_name="name", address="unix:/s", dtype="float32", device="cpu", slots=8,
        context_length=256, scope="all-linear", exclude=["a", "b"], rounding="nearest", hold_seconds=7,
    )  # fmt: skip


def test_an_engine_that_a_killed_gateway_left_behind_is_ended(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="seedbed-"))
    store, address = tmp_path / "store.sqlite", f"unix:{folder}/engine.sock"
    sleep = "import time; time.sleep(60)"
    program = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {sleep!r}]); {sleep}"
    orphan = subprocess.Popen(
        [sys.executable, "-c", program, "seedbed_server.engine", address],
        start_new_session=True,
    )
    deadline = time.monotonic() + 10
    while not (below := psutil.Process(orphan.pid).children()) and time.monotonic() < deadline:
        time.sleep(0.05)
    (tmp_path / "store.sqlite.engine.pid").write_text(f"{orphan.pid} {address}\n")
    # A zombie still has its entry in /proc: its parent, this test, has to take it.
    reaper = psutil.Process(orphan.pid)
    threading.Thread(target=orphan.wait, daemon=True).start()
    ChildFactory(store, config).close()
    psutil.wait_procs([reaper, *below], timeout=10)
    assert not reaper.is_running()
    assert not folder.exists()
    assert not any(process.is_running() for process in below)


def test_another_process_that_has_the_pid_by_now_is_left_alone(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        (tmp_path / "store.sqlite.engine.pid").write_text(f"{other.pid} unix:/tmp/old.sock\n")
        ChildFactory(tmp_path / "store.sqlite", config).close()
        assert other.poll() is None
    finally:
        os.killpg(other.pid, signal.SIGKILL)
        other.wait(10)


def test_every_gateway_has_a_private_socket_with_a_short_name(tmp_path: Path) -> None:
    factory = ChildFactory(tmp_path / "store.sqlite", config)
    try:
        folder = Path(factory().address.removeprefix("unix:")).parent
        assert len(str(folder)) < 80
        assert folder.stat().st_mode & 0o777 == 0o700
    finally:
        factory.close()
    assert not folder.exists()


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    from tests.toys import make_toy

    return make_toy("llama", tmp_path / "toy")


def test_a_port_that_is_taken_is_refused_before_anything_starts(
    toy: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code = serve(load_settings(model=str(toy), store=tmp_path / "s.sqlite", port=port))
    assert code == 2
    assert f"127.0.0.1:{port} cannot be listened on" in capfd.readouterr().err
    assert not (tmp_path / "s.sqlite").exists()


def test_a_store_that_is_in_use_is_refused_before_anything_starts(
    toy: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Store(tmp_path / "s.sqlite"):
        code = serve(load_settings(model=str(toy), store=tmp_path / "s.sqlite", port=0))
    assert code == 2
    assert f"in use by process {os.getpid()}" in capfd.readouterr().err


def test_a_model_that_is_not_there_is_refused_before_anything_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = serve(load_settings(model=str(tmp_path / "nothing"), store=tmp_path / "s.sqlite", port=0))
    assert code == 3
    assert "nothing" in capfd.readouterr().err
