"""Where each checkpoint parameter lives in SGLang's fused modules.

SGLang fuses q, k, v and gate, up into one matrix each; the noise, the updates, the digest and snapshots speak
of checkpoint parameters. A `Parameter` is the checkpoint's view of one part, a `Site` is the module that
computes with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

__all__ = ["Coverage", "Kind", "Layout", "LayoutError", "Parameter", "Site", "lay_out"]


class LayoutError(ValueError):
    """A model that cannot be covered; the message says which parameter and what to do."""


class Coverage(Enum):
    """How a parameter takes part; the values are those of seedbed.v1.Coverage."""

    MATRIX = 1
    BIAS = 2
    NORM = 3
    EXCLUDED = 4


class Kind(Enum):
    """What a site computes."""

    LINEAR = "linear"
    VOCABULARY = "vocabulary"
    NORM = "norm"


@dataclass(frozen=True, eq=False)
class Parameter:
    """One checkpoint parameter.

    `data` is a view of the live weights: [m, n] for a matrix, [n] for a bias or norm; for a vocabulary
    without the rows that SGLang pads it with.
    """

    name: str
    coverage: Coverage
    natural: Coverage
    data: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """As in the checkpoint."""
        return tuple(self.data.shape)


@dataclass(frozen=True, eq=False)
class Site:
    """One module and the checkpoint parameters that it computes with.

    A linear site has one weight for each part and either no bias or one for each part.
    """

    kind: Kind
    module: nn.Module
    weights: tuple[Parameter, ...]
    biases: tuple[Parameter, ...] = ()

    @property
    def held_rows(self) -> int:
        """Rows of the module's own weight, with those that SGLang pads a vocabulary with."""
        weight = self.module.weight
        assert isinstance(weight, Tensor)
        return weight.shape[0]


@dataclass(frozen=True)
class Layout:
    """A whole model: its sites, and its parameters in the order of their names."""

    sites: tuple[Site, ...]
    parameters: tuple[Parameter, ...]

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.parameters)

    @property
    def covered(self) -> tuple[Parameter, ...]:
        """Those that perturbations and updates move."""
        return tuple(p for p in self.parameters if p.coverage is not Coverage.EXCLUDED)


class _Scope:
    """Which parameters take part."""

    def __init__(self, scope: str, exclude: list[str]) -> None:
        self.scope, self.exclude = scope, exclude
        self.patterns = [] if scope in ("full", "all-linear") else [p.strip() for p in scope.split(",")]

    def coverage(self, name: str, natural: Coverage, linear: bool) -> Coverage:
        inside = (
            linear
            if self.scope == "all-linear"
            else any(fnmatchcase(name, p) for p in self.patterns or ["*"])
        )
        if not inside or any(fnmatchcase(name, p) for p in self.exclude):
            return Coverage.EXCLUDED
        return natural


def lay_out(model: nn.Module, scope: str = "full", exclude: list[str] | None = None) -> Layout:
    """Walks a loaded SGLang model.

    Args:
        model: a Llama, Qwen2 or Qwen3 model of SGLang, unsharded.
        scope: `full`, `all-linear`, or comma-separated name patterns.
        exclude: name patterns of parameters that are left alone, covered or not.

    Raises:
        LayoutError: a parameter that nothing here covers and no pattern excludes; a pattern that excludes
            nothing; a module that is not float32 or bfloat16, or is packed or fused in an unknown way.
    """
    exclude = exclude or []
    rules = _Scope(scope, exclude)
    sites: list[Site] = []
    seen: dict[int, str] = {}
    for name, module in model.named_modules():
        site = _site(name, module, rules)
        if site is not None and id(module) not in seen:
            seen[id(module)] = name
            sites.append(site)
    parameters = [p for s in sites for p in (*s.weights, *s.biases)]
    covered_storage = {p.data.untyped_storage().data_ptr() for p in parameters}
    for name, tensor in model.named_parameters():
        if tensor.untyped_storage().data_ptr() in covered_storage:
            continue
        if not any(fnmatchcase(name, pattern) for pattern in exclude):
            raise LayoutError(
                f"{name}: nothing covers this parameter ({tuple(tensor.shape)} in {type(model).__name__}); "
                f"exclude it to serve the model all the same, with --exclude {name!r} or a pattern"
            )
        parameters.append(Parameter(name, Coverage.EXCLUDED, Coverage.EXCLUDED, tensor.data))
    for pattern in exclude:
        if not any(fnmatchcase(p.name, pattern) for p in parameters):
            raise LayoutError(
                f"exclude: {pattern!r} matches no parameter of this model; correct or remove it"
            )
    if all(p.coverage is Coverage.EXCLUDED for p in parameters):
        raise LayoutError(
            f"scope: {scope!r} leaves nothing to perturb; use full, all-linear or other patterns"
        )
    parameters.sort(key=lambda p: p.name)
    return Layout(tuple(sites), tuple(parameters))


def _site(name: str, module: nn.Module, rules: _Scope) -> Site | None:
    from sglang.srt.layers.layernorm import RMSNorm
    from sglang.srt.layers.linear import LinearBase
    from sglang.srt.layers.vocab_parallel_embedding import VocabParallelEmbedding

    if isinstance(module, LinearBase):
        parts = _parts(name, module)
        weights = _split(parts, "weight", Coverage.MATRIX, _plain(name, module, "weight"), rules)
        bias = getattr(module, "bias", None)
        biases = () if bias is None else _split(parts, "bias", Coverage.BIAS, bias.data, rules)
        return Site(Kind.LINEAR, module, weights, biases)
    if isinstance(module, VocabParallelEmbedding):
        rows = _plain(name, module, "weight")[: module.org_vocab_size]
        full = f"{name}.weight"
        coverage = rules.coverage(full, Coverage.MATRIX, linear=False)
        return Site(Kind.VOCABULARY, module, (Parameter(full, coverage, Coverage.MATRIX, rows),))
    if isinstance(module, RMSNorm) and getattr(module, "weight", None) is not None:
        full = f"{name}.weight"
        coverage = rules.coverage(full, Coverage.NORM, linear=False)
        weight = Parameter(full, coverage, Coverage.NORM, _plain(name, module, "weight"))
        return Site(Kind.NORM, module, (weight,))
    return None


def _parts(name: str, module: Any) -> list[tuple[str, int]]:
    """Checkpoint names (without .weight) and rows of the matrices that a linear module holds."""
    from sglang.srt.layers.linear import MergedColumnParallelLinear, QKVParallelLinear

    prefix, _, leaf = name.rpartition(".")
    if isinstance(module, QKVParallelLinear):
        sizes = (module.q_proj_shard_size, module.kv_proj_shard_size, module.v_proj_shard_size)
        return [(f"{prefix}.{p}_proj", n) for p, n in zip("qkv", sizes, strict=True)]
    if isinstance(module, MergedColumnParallelLinear):
        if leaf != "gate_up_proj":
            raise LayoutError(f"{name}: this fused module is not known; the model cannot be served yet")
        return [
            (f"{prefix}.{p}_proj", n)
            for p, n in zip(("gate", "up"), module.output_partition_sizes, strict=True)
        ]
    return [(name, module.weight.shape[0])]


def _split(
    parts: list[tuple[str, int]], suffix: str, natural: Coverage, fused: Tensor, rules: _Scope
) -> tuple[Parameter, ...]:
    if fused.shape[0] != sum(rows for _, rows in parts):
        raise LayoutError(f"{parts[0][0]}: {fused.shape[0]} rows do not split into {parts}")
    found, start = [], 0
    for name, rows in parts:
        full = f"{name}.{suffix}"
        coverage = rules.coverage(full, natural, linear=True)
        found.append(Parameter(full, coverage, natural, fused[start : start + rows]))
        start += rows
    return tuple(found)


def _plain(name: str, module: nn.Module, attribute: str) -> Tensor:
    """The module's weight; refuses weights that are not what the checkpoint says (packed, quantised)."""
    weight: Tensor = getattr(module, attribute).data
    if str(weight.dtype) not in ("torch.float32", "torch.bfloat16"):
        raise LayoutError(
            f"{name}: {weight.dtype} weights cannot be updated; serve a float32 or bfloat16 model"
        )
    if getattr(module, "use_intel_amx_backend", False):
        raise LayoutError(f"{name}: its weights are packed for AMX, which no update can write; use float32")
    return weight
