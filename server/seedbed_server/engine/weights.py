"""Full weights on disk: snapshots as ordinary Hugging Face folders, and weights put back from one.

A folder is written beside its name and renamed when everything in it is on the disk; half a snapshot has
never its name.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from seedbed_server.engine.layout import Layout, Parameter
from seedbed_server.engine.tensor_file import write_tensors

__all__ = ["WeightsError", "find_weights", "load_weights", "read_note", "save_folder"]

_FILE_BYTES = 4 << 30
"""Weights of one file."""
_NOTE = "seedbed.json"
_NOT_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "*.safetensors.index.json", _NOTE)


class WeightsError(RuntimeError):
    """A folder that cannot be written or read; the message names it and the remedy."""


def save_folder(layout: Layout, model_folder: Path, folder: Path, note: dict[str, Any]) -> int:
    """Writes all weights, and everything of the model's folder that is no weight; returns the bytes.

    Args:
        layout: the live weights.
        model_folder: where configuration and tokenizer come from.
        folder: must not exist; its parent must.
        note: what `seedbed.json` in the folder says about these weights.

    Raises:
        WeightsError: the folder exists, its parent is missing, or the disk is full or fails. Nothing is left.
    """
    if folder.exists():
        raise WeightsError(f"folder: {folder} exists already; name a new one")
    if not folder.parent.is_dir():
        raise WeightsError(f"folder: {folder.parent} is no directory; make it first")
    need = sum(p.data.numel() * p.data.element_size() for p in layout)
    free = shutil.disk_usage(folder.parent).free
    if free < need:
        raise WeightsError(
            f"folder: {folder.parent} has {free:,} bytes free and the snapshot needs {need:,}; "
            "free some space or name a folder on another disk"
        )
    partial = folder.with_name(f".{folder.name}.partial-{os.getpid()}")
    try:
        shutil.copytree(model_folder, partial, ignore=shutil.ignore_patterns(*_NOT_WEIGHTS, ".*"))
        _save_tensors(layout, partial)
        (partial / _NOTE).write_text(json.dumps(note, indent=1))
        _sync(partial)
        partial.rename(folder)
        _sync_directory(folder.parent)
    except (OSError, SafetensorError) as error:
        full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)
        remedy = (
            "free some space or name a folder on another disk"
            if full
            else "check the disk and its permissions"
        )
        raise WeightsError(f"folder: {folder} could not be written ({error}); {remedy}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return sum(f.stat().st_size for f in folder.iterdir() if f.is_file())


def find_weights(layout: Layout, folder: Path) -> dict[str, Path]:
    """The file of each parameter in a Hugging Face folder; reads headers only.

    Raises WeightsError when a file is damaged or a parameter is missing or has another shape.
    """
    found: dict[str, Path] = {}
    wanted = {p.name: p for p in layout}
    try:
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 (no mapping)
                    found[name] = file
                    parameter = wanted.get(name)
                    shape = tuple(tensors.get_slice(name).get_shape())
                    if parameter is not None and shape != parameter.shape:
                        raise WeightsError(
                            f"folder: {name} in {file} has the shape {shape} and the live model "
                            f"{parameter.shape}; name a folder of the same model"
                        )
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"folder: {folder} cannot be read ({error}); take another snapshot") from error
    missing = [name for name in wanted if name not in found]
    if missing:
        raise WeightsError(f"folder: {folder} has no {missing[0]}; name a complete folder of the same model")
    return found


def load_weights(layout: Layout, files: dict[str, Path]) -> None:
    """Copies the weights that `find_weights` found into the live ones."""
    for parameter in layout:
        with safe_open(files[parameter.name], framework="pt") as tensors:
            parameter.data.copy_(tensors.get_tensor(parameter.name))


def read_note(folder: Path) -> dict[str, Any]:
    """What `save_folder` noted about the weights of a snapshot. Raises WeightsError."""
    try:
        note = json.loads((folder / _NOTE).read_text())
    except (OSError, ValueError) as error:
        raise WeightsError(
            f"folder: {folder} is no snapshot ({error}); name a folder that Snapshot wrote"
        ) from error
    if not isinstance(note, dict):
        raise WeightsError(f"folder: {folder / _NOTE} is damaged; name another snapshot")
    return note


def _save_tensors(layout: Layout, folder: Path) -> None:
    files: list[list[Parameter]] = [[]]
    size = 0
    for parameter in layout:
        length = parameter.data.numel() * parameter.data.element_size()
        if files[-1] and size + length > _FILE_BYTES:
            files.append([])
            size = 0
        files[-1].append(parameter)
        size += length
    index: dict[str, str] = {}
    for i, parameters in enumerate(files):
        name = "model.safetensors" if len(files) == 1 else f"model-{i + 1:05}-of-{len(files):05}.safetensors"
        shapes = {p.name: (tuple(p.data.shape), p.data.dtype) for p in parameters}
        write_tensors(folder / name, shapes, (p.data for p in parameters), {"format": "pt"})
        index.update({p.name: name for p in parameters})
    if len(files) > 1:
        total = sum(p.data.numel() * p.data.element_size() for p in layout)
        text = json.dumps({"metadata": {"total_size": total}, "weight_map": index})
        (folder / "model.safetensors.index.json").write_text(text)
    dtype = str(layout.parameters[0].data.dtype).removeprefix("torch.")
    config = json.loads((folder / "config.json").read_text())
    config.pop("torch_dtype", None)
    (folder / "config.json").write_text(json.dumps({**config, "dtype": dtype}, indent=1))


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    _sync_directory(folder)


def _sync_directory(folder: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
