"""`seedbed serve` as an operator runs it: a process with a terminal's process group, a store and a port."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
from openai import AsyncOpenAI, OpenAI

from seedbed_server.store import Place, place_of

START_SECONDS = 300.0
END_SECONDS = 60.0


class Served:
    """One server after the other on one store; `start` and `interrupt` may alternate."""

    def __init__(self, model: Path, folder: Path, **settings: object) -> None:
        self.model, self.folder = model, folder
        self.store: Path | str = folder / "store.sqlite"
        self.settings = settings
        self.output = folder / "serve.log"
        self._process: subprocess.Popen[bytes] | None = None

    # -- the process ---------------------------------------------------------------------------------

    def command(self, port: int) -> list[str]:
        program = "from seedbed_server.launch import main; main()"
        options = {"model": self.model, "store": self.store, "port": port, "device": "cpu", **self.settings}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        return [sys.executable, "-c", program, "serve", *flags]

    def start(self) -> None:
        self.launch()
        self.wait_until(self.is_ready, START_SECONDS)

    def launch(self) -> None:
        """Without waiting for anything."""
        self.port = _free_port()
        with self.output.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(self.port), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def interrupt(self, times: int = 1) -> int:
        """Ctrl-C, as a terminal sends it to the whole foreground group. Returns the exit code."""
        assert self._process is not None
        for _ in range(times):
            os.killpg(self._process.pid, signal.SIGINT)
            time.sleep(0.2)
        return self._process.wait(END_SECONDS)

    def kill(self) -> None:
        """SIGKILL, to the server's process alone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(END_SECONDS)

    def end(self) -> None:
        """At the end of all tests, whatever state they left."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                for process in self.processes():
                    process.kill()

    def processes(self) -> list[psutil.Process]:
        """The server and everything below it."""
        assert self._process is not None
        server = psutil.Process(self._process.pid)
        return [server, *server.children(recursive=True)]

    @property
    def place(self) -> Place:
        return place_of(self.store, None if isinstance(self.store, Path) else self.folder)

    @property
    def engine_pid(self) -> int:
        beside = self.place.beside
        return int(beside.with_name(f"{beside.name}.engine.pid").read_text().split()[0])

    # -- its clients ---------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def openai(self, retries: int = 0) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=retries, timeout=120)

    def openai_async(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=120)

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=120)

    def ask(
        self, text: str = "What is the capital of France?", model: str = "toy-llama", **extras: Any
    ) -> Any:
        options = {"max_tokens": 8, "temperature": 0, **extras}
        with self.openai() as client:
            return client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": text}], **options
            )

    def reward(self, **fields: object) -> httpx.Response:
        with self.http() as client:
            return client.post("/v1/feedback", json=fields)

    def status(self) -> dict[str, Any]:
        with self.http() as client:
            values: dict[str, Any] = client.get("/v1/status").json()
            return values

    def learn(self, updates: int) -> None:
        """Populations until so many updates are published."""
        for _ in range(updates):
            begin = self.status()
            # Members that were asked more often before come later.
            for _ in range(40):
                if self.status()["population"]["members_complete"] == begin["population"]["size"]:
                    break
                if self.status()["population"]["id"] != begin["population"]["id"]:
                    break
                answer = self.ask("Count to three.")
                reward = float(answer.seedbed["member"])
                posted = self.reward(completion_id=answer.id, reward=reward, reward_id=answer.id)
                assert posted.json()["result"] in ("accepted", "late"), posted.text
            self.wait_until(lambda version=begin["version"]: self.status()["version"] == version + 1, 60)

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds:g} s:\n{self.log_tail()}"
            time.sleep(0.1)

    def log_tail(self) -> str:
        logs = (self.output, self.folder / "store.sqlite.engine.log")
        return "\n".join(log.read_text(errors="replace")[-3000:] for log in logs if log.exists())

    def is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the server ended:\n{self.log_tail()}"
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
