"""The difference of two folders of weights, as one safetensors file of float32."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from seedbed_server.engine.tensor_file import write_tensors
from seedbed_server.files import put_in_place

__all__ = ["write_difference"]


def write_difference(base: Path, folder: Path, path: Path, metadata: dict[str, str]) -> int:
    """Writes `folder` - `base` for every parameter; holds one of them in memory. Returns the bytes.

    Both folders are ones that Snapshot wrote, of one model and dtype. The difference is rounded to float32
    once; adding it back need not give the last bit again. All of the file is written, or nothing. Raises
    OSError, and FileExistsError for a path that is there.
    """
    before, after = _places(base), _places(folder)
    names = sorted(after)
    shapes = {name: (_shape(after[name], name), torch.float32) for name in names}
    moved = (_difference(name, before[name], after[name]) for name in names)
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        size = write_tensors(partial, shapes, moved, {"format": "pt", **metadata})
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        put_in_place(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return size


def _difference(name: str, before: Path, after: Path) -> Tensor:
    with safe_open(before, framework="pt") as one, safe_open(after, framework="pt") as other:
        moved: Tensor = other.get_tensor(name).float() - one.get_tensor(name).float()
    return moved


def _shape(file: Path, name: str) -> tuple[int, ...]:
    with safe_open(file, framework="pt") as tensors:
        return tuple(tensors.get_slice(name).get_shape())


def _places(folder: Path) -> dict[str, Path]:
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            found.update(dict.fromkeys(tensors.keys(), file))
    return found
