"""A snapshot that is being written while requests are answered: perturbing never writes the weights, so that
a thread may read them for as long as no update runs.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import torch

from seedbed_server.engine.layout import Layout
from seedbed_server.engine.weights import save_folder

__all__ = ["Saving"]


class Saving:
    """Writes one folder; see `save_folder` for the arguments. Begins at once."""

    def __init__(self, layout: Layout, model_folder: Path, folder: Path, note: dict[str, Any]) -> None:
        self._arguments = (layout, model_folder, folder, note)
        self._bytes = 0
        self._error: Exception | None = None
        # A daemon: an engine that has to end does not wait for the disk. What it leaves has not its name yet.
        self._thread = threading.Thread(target=self._run, name="seedbed-snapshot", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the weights must stand still."""
        return self._thread.is_alive()

    def result(self) -> int:
        """The bytes that were written, once it runs no more. Raises WeightsError, or whatever went wrong."""
        if self._error is not None:
            raise self._error
        return self._bytes

    def _run(self) -> None:
        try:
            with torch.no_grad():
                self._bytes = save_folder(*self._arguments)
        except Exception as error:  # noqa: BLE001
            self._error = error
