"""Perturbing never writes the weights: y = x W^T + (s / (8 sqrt r)) (x B) A^T, each row with its own s.

EGGROLL (arXiv 2511.16652, section 3) computes the same side path for one member a row. A layer takes a fixed
number of torch operations, whatever the members. A few rows (decode) gather the factors of their slots, once
for as long as the batch stays the same, and work element by element: on a CPU a product of small matrices
costs more in waking threads than in arithmetic. Many rows (prefill) multiply with the factors of all slots,
under coefficients that are zero for all slots but a row's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from seedbed_server.engine.address import Address
from seedbed_server.engine.slots import (
    Factors,
    LinearFactors,
    NormFactors,
    SlotTable,
    VocabularyFactors,
)

__all__ = ["Rows", "embed_", "head_", "linear_", "norm_", "rows_of"]

_FEW = 96
"""Up to so many rows gather their factors."""


@dataclass(frozen=True)
class Rows:
    """What each row of a batch adds. Coefficients are float32 also where the weights are bfloat16.

    Attributes:
        slot: int64 [rows]; any slot where the coefficients are 0.
        matrix: [rows, 1], signed sigma / 8, for products of two factors of variance 8.
        vector: [rows, 1], signed sigma / sqrt(8), for one factor of variance 8.
        masked: for many rows, `matrix` and `vector` as [rows, slots] with one place that is not 0.
        kept: what was gathered for these rows, by the factors that it comes from; None: nothing is kept.
    """

    slot: Tensor
    matrix: Tensor
    vector: Tensor
    slots: int
    masked: tuple[Tensor, Tensor] | None = None
    kept: dict[int, tuple[Tensor, ...]] | None = field(default=None, repr=False, compare=False)

    def keeping(self) -> Rows:
        """The same rows, for steps that repeat: what they gather stays, as long as their slots do.

        On a GPU memory is worth more than the time for it.
        """
        few = self.masked is None and len(self) <= _FEW and self.slot.device.type == "cpu"
        return replace(self, kept={}) if few and self.kept is None else self

    def gathered(self, factors: Factors, gather: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """What `gather` makes of these rows and factors; nobody may write to it."""
        if self.kept is None:
            return gather()
        found = self.kept.get(id(factors))
        if found is None:
            found = self.kept[id(factors)] = gather()
        return found

    def pick(self, index: Tensor) -> Rows:
        """The rows of these indices, in their order."""
        slot, matrix, vector = self.slot[index], self.matrix[index], self.vector[index]
        masked = None
        if len(slot) > _FEW:
            place = slot[:, None]
            empty = matrix.new_zeros(len(slot), self.slots)
            masked = (empty.scatter(1, place, matrix), empty.scatter(1, place, vector))
        return Rows(slot, matrix, vector, self.slots, masked)

    def repeat(self, lengths: Sequence[int]) -> Rows:
        """Each row as often as its request has tokens."""
        index = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
        return self.pick(index.to(self.slot.device))

    def range(self, start: int, stop: int) -> Rows:
        """Rows [start, stop)."""
        if start == 0 and stop == len(self):
            return self
        return self.pick(torch.arange(start, stop, device=self.slot.device))

    def __len__(self) -> int:
        return len(self.slot)


def rows_of(addresses: Sequence[Address], table: SlotTable) -> Rows | None:
    """The rows of a batch's requests, one each; None where nothing is perturbed."""
    if not any(a.sigma for a in addresses):
        return None
    slots = table.acquire(a.seed for a in addresses if a.sigma)
    slot = torch.tensor([slots[a.seed] if a.sigma else 0 for a in addresses], device=table.device)
    sigma = torch.tensor([[a.sigma] for a in addresses], dtype=torch.float64)
    matrix, vector = (sigma / 8).float(), (sigma / math.sqrt(8)).float()
    return Rows(slot, matrix.to(table.device), vector.to(table.device), table.count)


def linear_(y: Tensor, x: Tensor, factors: LinearFactors, rows: Rows, bias: bool) -> None:
    """Adds to y [rows, m] what the perturbation adds for inputs x [rows, n]."""
    if rows.masked is not None:
        t = (x @ factors.b.t()).view(len(rows), -1, rows.slots).mul_(rows.masked[0][:, None])
        for j, (first, last) in enumerate(factors.parts):
            y[:, first:last].addmm_(t[:, j], factors.a[:, first:last])
        if bias and factors.bias is not None:
            y.add_(rows.masked[1] @ factors.bias.float())
        return
    b, a, *biases = rows.gathered(factors, lambda: _linear_factors(factors, rows))
    # [parts, rows, 1]
    t = (x.float() * b).sum(-1, keepdim=True).mul_(rows.matrix)
    for j, (first, last) in enumerate(factors.parts):
        _add_product_(y[:, first:last], t[j], a[:, first:last])
    if bias and biases:
        _add_product_(y, rows.vector, biases[0])


def _linear_factors(factors: LinearFactors, rows: Rows) -> tuple[Tensor, ...]:
    """B [parts, rows, n], a [rows, m], and where there is one the bias [rows, m]."""
    b = factors.b.view(len(factors.parts), rows.slots, -1).index_select(1, rows.slot)
    a = factors.a.index_select(0, rows.slot)
    return (b, a) if factors.bias is None else (b, a, factors.bias.index_select(0, rows.slot))


def _vocabulary_factors(factors: VocabularyFactors, rows: Rows) -> tuple[Tensor, ...]:
    """B [rows, n], a [rows, padded vocabulary]."""
    return factors.b.index_select(0, rows.slot), factors.a.index_select(0, rows.slot)


def embed_(y: Tensor, ids: Tensor, factors: VocabularyFactors, rows: Rows) -> None:
    """Adds to the embeddings y [rows, n] of tokens ids [rows]."""
    t = factors.a[rows.slot, ids][:, None] * rows.matrix
    _add_product_(y, t, factors.b.index_select(0, rows.slot))


def head_(y: Tensor, x: Tensor, factors: VocabularyFactors, rows: Rows) -> None:
    """Adds to the logits y [rows, padded vocabulary] of states x [rows, n]."""
    if rows.masked is not None:
        y.addmm_((x @ factors.b.t()).mul_(rows.masked[0]), factors.a)
        return
    b, a = rows.gathered(factors, lambda: _vocabulary_factors(factors, rows))
    t = (x.float() * b).sum(-1, keepdim=True).mul_(rows.matrix)
    _add_product_(y, t, a)


def norm_(y: Tensor, factors: NormFactors, rows: Rows) -> None:
    """Scales a norm's output y, [rows, n] or [rows (x) heads, n], by 1 + sigma eps."""
    if rows.masked is not None:
        scale = (rows.masked[1] @ factors.v.float()).add_(1)
    else:
        (scale,) = rows.gathered(
            factors, lambda: ((factors.v.index_select(0, rows.slot) * rows.vector).add_(1),)
        )
    if y.numel() == scale.numel():
        y.mul_(scale.view(y.shape))
    else:
        y.view(len(rows), -1, scale.shape[1]).mul_(scale[:, None])


def _add_product_(y: Tensor, t: Tensor, factor: Tensor) -> None:
    """Adds t [rows, 1] times factor [rows, m] to y; in float32 where y is narrower."""
    if y.dtype == torch.float32:
        y.addcmul_(t, factor)
    else:
        y.add_(t * factor)
