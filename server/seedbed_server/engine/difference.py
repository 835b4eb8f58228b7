"""The difference of two folders of weights, as one safetensors file of float32."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import torch
from safetensors import safe_open

__all__ = ["write_difference"]


def write_difference(base: Path, folder: Path, path: Path, metadata: dict[str, str]) -> int:
    """Writes `folder` - `base` for every parameter; holds one of them in memory. Returns the bytes.

    Both folders are ones that Snapshot wrote, of one model and dtype. The difference is rounded to float32
    once; adding it back need not give the last bit again. All of the file is written, or nothing. Raises
    OSError, and FileExistsError for a path that is there.
    """
    before, after = _places(base), _places(folder)
    shapes: dict[str, list[int]] = {}
    for name in sorted(after):
        with safe_open(after[name], framework="pt") as tensors:
            shapes[name] = list(tensors.get_slice(name).get_shape())
    header: dict[str, object] = {"__metadata__": {"format": "pt", **metadata}}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    # The format wants tensors aligned to 8 bytes.
    text += b" " * (-len(text) % 8)
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        with partial.open("xb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in shapes:
                file.write(_difference(name, before[name], after[name]))
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return 8 + len(text) + end


def _difference(name: str, before: Path, after: Path) -> bytes:
    with safe_open(before, framework="pt") as one, safe_open(after, framework="pt") as other:
        moved = other.get_tensor(name).float() - one.get_tensor(name).float()
    return bytes(moved.contiguous().view(torch.uint8).numpy().tobytes())


def _places(folder: Path) -> dict[str, Path]:
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            found.update(dict.fromkeys(tensors.keys(), file))
    return found
