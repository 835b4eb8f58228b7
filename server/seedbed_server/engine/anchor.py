"""The base weights, for updates that decay towards them.

They stay on disk, mapped into memory, and are read a few rows at a time: no second copy of the model is made.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from seedbed_server.engine.digest import element_sum
from seedbed_server.engine.layout import Layout, Parameter
from seedbed_server.engine.update import Shard
from seedbed_server.engine.weights import WeightsError, find_weights

__all__ = ["Anchor"]

_BLOCK_ELEMENTS = 1 << 20
"""Elements that are read at once to prove what is on disk: 4 MiB of float32."""


class Anchor:
    """The base weights in a Hugging Face folder.

    Args:
        layout: the live weights, whose names, dtype and device it speaks.
        folder: where the base was loaded from.

    Raises:
        WeightsError: the folder lacks a parameter or cannot be read.
    """

    def __init__(self, layout: Layout, folder: Path) -> None:
        self._layout = layout
        self._folder = folder
        self._files = find_weights(layout, folder)
        self._seen = self._stamps()
        self._open: dict[Path, Any] = {}
        try:
            for file in set(self._files.values()):
                self._open[file] = safe_open(file, framework="pt")
        except (OSError, SafetensorError) as error:
            raise self._unreadable(error) from error

    @property
    def changed(self) -> bool:
        """Whether a file is another one than when this was made; what is read may then be anything."""
        try:
            return self._stamps() != self._seen
        except OSError:
            return True

    def rows(self, parameter: Parameter) -> Callable[[int, int], Tensor]:
        """Reads rows `first` to `last` (exclusive), as the live dtype has them. Raises WeightsError."""
        try:
            stored = self._open[self._files[parameter.name]].get_slice(parameter.name)
        except (OSError, SafetensorError) as error:
            raise self._unreadable(error) from error

        def read(first: int, last: int) -> Tensor:
            part: Tensor = stored[first:last]
            return part.to(parameter.data.device, parameter.data.dtype)

        return read

    def sums(self) -> list[tuple[str, tuple[int, ...], int]]:
        """Name, shape and element sum of every parameter, for a digest; reads all of them."""
        return [(p.name, p.shape, self._sum(p)) for p in self._layout]

    def _sum(self, parameter: Parameter) -> int:
        read = self.rows(parameter)
        rows = parameter.shape[0]
        columns = parameter.shape[1] if len(parameter.shape) == 2 else 1
        block = max(1, _BLOCK_ELEMENTS // columns)
        parts = (
            element_sum(read(first, min(rows, first + block)), Shard(row=first))
            for first in range(0, rows, block)
        )
        return sum(parts) % 2**64

    def _stamps(self) -> dict[Path, tuple[int, int, int]]:
        found = {}
        for file in set(self._files.values()):
            status = file.stat()
            found[file] = (status.st_ino, status.st_size, status.st_mtime_ns)
        return found

    def _unreadable(self, error: Exception) -> WeightsError:
        return WeightsError(
            f"decay: the base weights in {self._folder} cannot be read ({error}); put the model's folder back"
        )
