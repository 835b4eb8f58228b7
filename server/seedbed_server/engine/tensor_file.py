"""Writes safetensors files tensor by tensor: with one of them in memory, and without holding the interpreter
while the disk works, so that a server goes on answering.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

__all__ = ["write_tensors"]

_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
_PIECE = 1 << 24
"""Bytes of one write."""


def write_tensors(
    path: Path,
    shapes: Mapping[str, tuple[tuple[int, ...], torch.dtype]],
    tensors: Iterable[Tensor],
    metadata: Mapping[str, str],
) -> int:
    """Writes a file that must not exist. Returns its bytes. Raises OSError.

    Args:
        shapes: shape and dtype (float32, bfloat16 or float16) by name.
        tensors: one for each of them, in that order; made when it is its turn.
        metadata: texts for the header.
    """
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name, (shape, dtype) in shapes.items():
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    # The format wants the tensors aligned to 8 bytes.
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for (name, (shape, dtype)), tensor in zip(shapes.items(), tensors, strict=True):
            assert (tuple(tensor.shape), tensor.dtype) == (shape, dtype), name
            data = tensor.to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy().data
            for start in range(0, len(data), _PIECE):
                file.write(data[start : start + _PIECE])
    return 8 + len(text) + end
