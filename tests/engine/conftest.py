"""Real engines, started when a test first asks for one and shared by all that may share it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seedbed_server.engine import cpu
from seedbed_server.engine.config import EngineConfig
from seedbed_server.engine.process import EngineProcess
from tests.engine.client import Client

START_SECONDS = 300.0

# A few tests look at SGLang's modules in this process.
cpu.install()


@pytest.fixture(scope="session")
def socket_folder() -> Iterator[Path]:
    """A short path: a unix socket's name has at most about 100 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="sb-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def make_config(socket_folder: Path) -> Callable[..., EngineConfig]:
    def make(folder: Path, **settings: object) -> EngineConfig:
        values: dict[str, object] = {
            "model_name": "toy",
            "address": f"unix:{socket_folder}/{len(list(socket_folder.iterdir()))}.sock",
            "device": "cpu",
            "max_total_tokens": 4096,
            "orphan_seconds": 0.0,
        }
        return EngineConfig(model_path=str(folder), **{**values, **settings})  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def engines(
    make_config: Callable[..., EngineConfig], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Client]]:
    """`engines(folder, slots=64, ...)`: a client of the one engine with these settings."""
    running: dict[str, Client] = {}
    logs = tmp_path_factory.mktemp("engine-logs")

    def engine(folder: Path, **settings: object) -> Client:
        key = f"{folder} {sorted(settings.items())}"
        if key not in running:
            with (logs / f"{len(running)}.log").open("wb") as log:
                process = EngineProcess(make_config(folder, **settings), log=log)
                process.start(START_SECONDS)
            running[key] = Client(process)
        client = running[key]
        if client.state.version:
            client.restore()
        return client

    yield engine
    for client in running.values():
        client.process.stop()


@pytest.fixture
def llama(engines: Callable[..., Client], toy_folder: Callable[..., Path]) -> Client:
    """The toy Llama in float32 on its base weights; prompts beyond 64 tokens are prefilled in chunks."""
    return engines(toy_folder("llama"), chunked_prefill_size=64)
