"""The engine's process as the gateway wants it: settings, a socket of its own, its log, and no one left
behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from seedbed_server.engine.config import EngineConfig
from seedbed_server.engine.process import EngineProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from seedbed_server.config import ServeSettings
    from seedbed_server.models import ModelSource

__all__ = ["ChildFactory", "config_of"]

log = structlog.get_logger(__name__)

PREFIX = "seedbed-"


def config_of(settings: ServeSettings, source: ModelSource, address: str) -> EngineConfig:
    """What the settings say to an engine. Raises ConfigError."""
    return EngineConfig(
        model_path=source.path,
        model_name=source.served_name,
        address=address,
        device=settings.device,
        dtype=settings.dtype,
        slots=settings.slots,
        max_running_requests=settings.max_running_requests,
        context_length=settings.context_length,
        max_total_tokens=settings.max_total_tokens,
        scope=settings.scope,
        exclude=list(settings.exclude),
        rounding=settings.rounding,
        hold_seconds=settings.hold_seconds,
        tool_call_parser=settings.tool_call_parser,
        reasoning_parser=settings.reasoning_parser,
        log_level="warning" if settings.log_level == "info" else settings.log_level,
    )


class ChildFactory:
    """Makes the engine processes of one gateway, one after the other.

    Beside the store lie `<store>.engine.log`, their log, and `<store>.engine.pid`, by which the next gateway
    finds an engine that was left behind when this one was killed.
    """

    def __init__(self, store: Path, config: Callable[[str], EngineConfig]) -> None:
        self.log_path = store.with_name(store.name + ".engine.log")
        self._pid_path = store.with_name(store.name + ".engine.pid")
        # Short, private and new: a unix socket's name may have 100 bytes.
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._config = config(f"unix:{self._folder / 'engine.sock'}")
        self._log = self.log_path.open("wb")
        self._end_orphan()

    def __call__(self) -> EngineProcess:
        """The next process; not started yet."""
        pid_path = self._pid_path

        class Child(EngineProcess):
            def launch(self) -> None:
                super().launch()
                pid_path.write_text(f"{self.pid} {self.address}\n")

            def stop(self, *args: Any, **options: Any) -> None:
                super().stop(*args, **options)
                pid_path.unlink(missing_ok=True)

        return Child(self._config, self._log)

    def close(self) -> None:
        """Removes what the processes needed. They must have ended."""
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end_orphan(self) -> None:
        """Ends the engine of a gateway that was killed. The store's lock says that no other gateway is
        alive.
        """
        try:
            pid_text, address = self._pid_path.read_text().split()
            pid = int(pid_text)
        except (OSError, ValueError):
            return
        self._pid_path.unlink(missing_ok=True)
        _end_session(pid, address)
        folder = Path(address.removeprefix("unix:")).parent
        if folder.parent == self._folder.parent and folder.name.startswith(PREFIX):
            shutil.rmtree(folder, ignore_errors=True)


def _end_session(pid: int, address: str) -> None:
    """Ends the session of a process, if it is an engine at this address; a pid may be another's by now."""
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"seedbed_server.engine" not in command or address.encode() not in command:
            return
        log.warning("ending an engine that was left behind", pid=pid)
        for number, wait in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)
            deadline = time.monotonic() + wait
            while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
                time.sleep(0.1)
