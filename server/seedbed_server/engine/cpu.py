"""What SGLang's imports want on a plain CPU: stand-ins for two packages that need a GPU build.

Call `install` before SGLang is imported, in every process: the entry module does so at its top, and
multiprocessing's spawn imports that module again in each child.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

import torch

__all__ = ["install", "wanted"]


def wanted() -> bool:
    """Whether this machine has no GPU that torch can use."""
    return not torch.cuda.is_available()


def install() -> None:
    """Makes `sgl_kernel` and `torchvision` importable without a GPU; does nothing twice, or with a GPU."""
    if not wanted() or any(isinstance(finder, _TorchvisionSchemas) for finder in sys.meta_path):
        return
    os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
    # Threads that spin for work starve the other processes of a small machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    sys.modules.setdefault("sgl_kernel", _kernel_module())
    sys.meta_path.insert(0, _TorchvisionSchemas())


def _assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Writes each request's new cache places into its row, one after another."""
    taken = 0
    for row, start, end in zip(
        req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True
    ):
        req_to_token[row, start:end] = out_cache_loc[taken : taken + end - start].to(req_to_token.dtype)
        taken += end - start


def _kernel_module() -> ModuleType:
    """A `sgl_kernel` that has the one function SGLang's CPU path calls without asking.

    Everything else is missing by name, so that SGLang takes its own native paths.
    """
    module = ModuleType("sgl_kernel", "Stand-in for a CPU without SGLang's own kernels.")
    module.__spec__ = importlib.machinery.ModuleSpec("sgl_kernel", None)

    def missing(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*_: object, **__: object) -> NoReturn:
            raise NotImplementedError(f"sgl_kernel.{name} does not exist on this CPU")

        return call

    vars(module).update(
        __version__="0.0.0+cpu",
        assign_req_to_token_pool_cpu=_assign_req_to_token_pool_cpu,
        __getattr__=missing,
    )
    return module


class _TorchvisionSchemas(importlib.abc.MetaPathFinder):
    """Defines two operators just before torchvision is imported.

    Its compiled part needs CUDA libraries and cannot load beside a CPU torch; its Python part then fails on
    these undefined operators, which nothing here calls.
    """

    def __init__(self) -> None:
        self._library: torch.library.Library | None = None

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == "torchvision" and self._library is None:
            self._library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
            for operator in ("nms", "qnms"):
                schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                self._library.define(schema)  # type: ignore[no-untyped-call]
