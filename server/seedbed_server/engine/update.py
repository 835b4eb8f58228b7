"""theta_v -> theta_{v+1}, to the bit.

For every parameter, theta += k * sum_s c_s E_s with int8 coefficients c and integer noise, so that the sum
is an exact integer: no order of members, device or sharding can change it. Then, in this order and never
fused, t = fl(k S), for a norm fl(w t); with a decay d towards the base b, t = fl(t + fl(d fl(b - w)));
fl(w + t); one rounding to the live dtype.

`add(alpha=)`, `addcmul`, `addmm` and `torch.compile` may fuse a product and a sum into one rounding, which
differs between devices; none of them is used here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from seedbed_server.engine.layout import Coverage
from seedbed_server.engine.step import Step, StepError
from seedbed_server.noise import Factor, Plan, Segment, rounding_words

__all__ = ["Shard", "Step", "StepError", "Tally", "Target", "apply_step", "apply_steps"]

_EXACT_MEMBERS = 516
"""127 * 256 * 516 < 2^24: so many members sum exactly in float32 (rank 1)."""
_BLOCK_ELEMENTS = 1 << 20
"""Elements that one pass works on: 4 MiB of float32, so that temporaries stay small and in the cache."""
_DRAWN_TOGETHER = 1 << 16
"""Noise elements of a member that are drawn at once."""


@dataclass(frozen=True)
class Shard:
    """Which part of a checkpoint parameter a tensor is: its first row and column, and the whole's columns."""

    row: int = 0
    column: int = 0
    columns: int | None = None


@dataclass
class Tally:
    """Running sums over realised and exact steps, for the cosine between them."""

    dot: float = 0.0
    realised: float = 0.0
    exact: float = field(default=0.0)

    def add(self, realised: Tensor, exact: Tensor) -> None:
        """Both float32, of one shape."""
        self.dot += (realised * exact).sum(dtype=torch.float64).item()
        self.realised += realised.square().sum(dtype=torch.float64).item()
        self.exact += exact.square().sum(dtype=torch.float64).item()

    @property
    def cosine(self) -> float | None:
        """Between realised and exact step; None where one of them is zero."""
        product = math.sqrt(self.realised) * math.sqrt(self.exact)
        return self.dot / product if product else None


@dataclass(frozen=True, eq=False)
class Target:
    """One parameter, or one shard of it, that an update moves.

    Attributes:
        weight: float32 or bfloat16, [m, n] for a matrix and [n] otherwise; may be a strided view.
        name: Hugging Face name of the whole parameter.
        shard: where `weight` stands in the whole; the default is all of it.
        base: the base weights of rows `first` to `last` (exclusive) of `weight`, of its dtype and device; a
            step with a decay needs it.
    """

    weight: Tensor
    name: str
    coverage: Coverage
    shard: Shard = field(default_factory=Shard)
    base: Callable[[int, int], Tensor] | None = None

    def segments(self) -> list[Segment]:
        """The noise that it needs, in the order in which it is used."""
        row, column = self.shard.row, self.shard.column
        if self.coverage is not Coverage.MATRIX:
            return [Segment(self.name, Factor.VECTOR, row, row + self.weight.shape[0])]
        rows, columns = self.weight.shape
        return [
            Segment(self.name, Factor.A, row, row + rows),
            Segment(self.name, Factor.B, column, column + columns),
        ]


def apply_steps(targets: Sequence[Target], step: Step, tally: Tally | None = None) -> None:
    """Updates parameters in place; those that are excluded stay.

    `tally` adds up the realised and the exact step where the dtype rounds (not for float32).

    Raises StepError, before anything is written, for a step with a decay and a target without its base.
    """
    if step.decay:
        for target in targets:
            if target.base is None and target.coverage is not Coverage.EXCLUDED:
                raise StepError(f"decay: {step.decay:g} towards a base that {target.name} does not have")
    group: list[Target] = []
    size = 0
    for target in targets:
        if target.coverage is Coverage.EXCLUDED:
            continue
        length = sum(len(s) for s in target.segments())
        if group and size + length > _DRAWN_TOGETHER:
            _apply_group(group, step, tally)
            group, size = [], 0
        group.append(target)
        size += length
    if group:
        _apply_group(group, step, tally)


def apply_step(
    weight: Tensor,
    name: str,
    coverage: Coverage,
    step: Step,
    shard: Shard | None = None,
    tally: Tally | None = None,
    base: Callable[[int, int], Tensor] | None = None,
) -> None:
    """`apply_steps` for one target."""
    apply_steps([Target(weight, name, coverage, shard or Shard(), base)], step, tally)


def _apply_group(group: Sequence[Target], step: Step, tally: Tally | None) -> None:
    """Draws the noise of several parameters at once: many small draws would cost more than the sums."""
    segments = [s for target in group for s in target.segments()]
    plan = Plan(segments, group[0].weight.device)
    drawn = torch.stack([plan.draw(seed) for seed in step.seeds])
    parts = iter(torch.split(drawn, [len(s) for s in segments], dim=1))
    for target in group:
        if target.coverage is Coverage.MATRIX:
            _matrix(target, next(parts), next(parts), step, tally)
        else:
            _vector(target, next(parts), step, tally)


def _matrix(target: Target, a: Tensor, b: Tensor, step: Step, tally: Tally | None) -> None:
    """Takes a as int8 [N, m] and b as int8 [N, n]."""
    weight, shard = target.weight, target.shard
    rows, columns = weight.shape
    width = shard.columns or columns
    coefficients = torch.tensor(step.coefficients, dtype=torch.float32, device=weight.device)[:, None]
    left = (a.float() * coefficients).t().contiguous()
    right = b.float()
    block = max(1, _BLOCK_ELEMENTS // columns)
    for first in range(0, rows, block):
        part = weight[first : first + block]
        t = _integer_sum(left[first : first + block], right).mul_(step.matrix_multiplier)
        _pull(part, t, target, step, first)
        starts = [(shard.row + first + i) * width + shard.column for i in range(part.shape[0])]
        if width == columns:
            starts, shape = starts[:1], (1, part.numel())
        else:
            shape = (part.shape[0], columns)
        _add(part, t, target.name, step, starts, shape, tally)


def _vector(target: Target, values: Tensor, step: Step, tally: Tally | None) -> None:
    """Values int8 [N, n]."""
    weight = target.weight
    coefficients = torch.tensor(step.coefficients, dtype=torch.int32, device=weight.device)[:, None]
    # Integers below 127 * 16 * members: exact in int32, rounded once on the way to float32.
    total = (values.to(torch.int32) * coefficients).sum(0, dtype=torch.int32).float()
    t = total.mul_(step.vector_multiplier)
    if target.coverage is Coverage.NORM:
        t = weight.float() * t
    _pull(weight, t, target, step, 0)
    _add(weight, t, target.name, step, [target.shard.row], (1, weight.shape[0]), tally)


def _pull(part: Tensor, t: Tensor, target: Target, step: Step, first: int) -> None:
    """Makes fl(t + fl(d fl(b - w))) of t, whose rows begin at `first`; leaves it as it is for d = 0."""
    if step.decay:
        assert target.base is not None
        base = target.base(first, first + part.shape[0])
        t.add_((base.float() - part.float()).mul_(step.decay))


def _integer_sum(left: Tensor, right: Tensor) -> Tensor:
    """sum_s left[:, s] right[s, :]: [m, N] x [N, n] of integers to float32 [m, n], rounded at most once."""
    members = right.shape[0]
    if members <= _EXACT_MEMBERS:
        return left @ right
    chunks = range(0, members, _EXACT_MEMBERS)
    total = torch.zeros(left.shape[0], right.shape[1], dtype=torch.int32, device=left.device)
    for s in chunks:
        total += (left[:, s : s + _EXACT_MEMBERS] @ right[s : s + _EXACT_MEMBERS]).to(torch.int32)
    return total.float()


def _add(
    weight: Tensor,
    t: Tensor,
    name: str,
    step: Step,
    starts: Sequence[int],
    shape: tuple[int, int],
    tally: Tally | None,
) -> None:
    """fl(w + t) in float32, then one rounding to the dtype of `weight`, in place.

    `starts` and `shape` say where the elements stand in the whole parameter; see `rounding_words`.
    """
    if weight.dtype == torch.float32:
        weight.add_(t)
        return
    if weight.dtype != torch.bfloat16:
        raise StepError(f"{name}: {weight.dtype} weights cannot be updated; serve float32 or bfloat16")
    new = weight.float() + t
    if step.stochastic:
        words = rounding_words(name, step.version, starts, shape[1], weight.device)
        rounded = _round_stochastically(new, words.reshape(new.shape))
    else:
        rounded = new.to(torch.bfloat16)
    if tally is not None:
        tally.add(rounded.float() - weight.float(), t)
    weight.copy_(rounded)


def _round_stochastically(value: Tensor, words: Tensor) -> Tensor:
    """float32 to bfloat16: adds 16 random bits below the last kept one, then cuts.

    The chance of rounding away from zero is the fraction that is cut, so that the mean is the value
    (Gupta et al., "Deep learning with limited numerical precision", ICML 2015, section 3).
    Finite values only.
    """
    bits = value.view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    kept = (bits + (words & 0xFFFF)) & 0xFFFF0000
    # Back to a signed number that int32 can hold.
    return ((kept ^ 0x80000000) - 0x80000000).to(torch.int32).view(torch.float32).to(torch.bfloat16)
