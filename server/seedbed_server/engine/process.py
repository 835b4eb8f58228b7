"""An engine as a child process: start it, wait for it, end it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from typing import IO

from seedbed_server.engine.config import EngineConfig

__all__ = ["EngineProcess", "EngineRefusedError"]


class EngineRefusedError(RuntimeError):
    """The engine did not come up; the message is its own where it gave one."""


class EngineProcess:
    """One engine child. It leads a session of its own, so that a Ctrl-C reaches only its parent.

    Args:
        config: its settings.
        log: where its log goes; None: to this process's standard error.
        environment: variables beside those of this process.
    """

    def __init__(
        self, config: EngineConfig, log: IO[bytes] | None = None, environment: dict[str, str] | None = None
    ) -> None:
        self.config, self.address = config, config.address
        self._log, self._environment = log, environment or {}
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()

    @property
    def alive(self) -> bool:
        """Whether the child runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Its process id, also when it has ended."""
        return self._process.pid if self._process else None

    @property
    def returncode(self) -> int | None:
        """Its exit code once it has ended."""
        return self._process.poll() if self._process else None

    def launch(self) -> None:
        """Starts the child and returns at once."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "seedbed_server.engine", "--config", self.config.to_json()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
            env={**os.environ, **self._environment},
        )
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def wait_ready(self, timeout: float) -> None:
        """Blocks until it serves. Raises EngineRefusedError, and ends it, if it does not."""
        try:
            while True:
                line = self._lines.get(timeout=timeout)
                if line is None:
                    code = self._process.wait(10) if self._process else None
                    raise EngineRefusedError(
                        f"the engine ended with exit code {code} before it served; see its log"
                    )
                with contextlib.suppress(json.JSONDecodeError):
                    event = json.loads(line)
                    if event.get("event") == "ready":
                        return
                    if event.get("event") == "refused":
                        raise EngineRefusedError(event["message"])
        except queue.Empty:
            self.stop()
            raise EngineRefusedError(f"the engine did not serve within {timeout:g} s; see its log") from None
        except EngineRefusedError:
            # It ends by itself, with an exit code that says why; only one that hangs is made to.
            with contextlib.suppress(subprocess.TimeoutExpired):
                if self._process is not None:
                    self._process.wait(15)
            self.stop()
            raise

    def start(self, timeout: float = 600.0) -> None:
        """`launch` and `wait_ready`."""
        self.launch()
        self.wait_ready(timeout)

    def stop(self, grace: float = 15.0) -> None:
        """Ends the child and everything below it. Safe to call twice."""
        if self._process is None:
            return
        if self.alive:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
        # What is left of its session, also when it died by itself.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)

    def _read(self, stream: IO[str] | None) -> None:
        if stream is not None:
            for line in stream:
                self._lines.put(line)
        self._lines.put(None)
