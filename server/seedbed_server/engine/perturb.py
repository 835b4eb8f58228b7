"""Perturbing never writes the weights: y = x W^T + (s / (8 sqrt r)) (x B) A^T, each row with its own s.

All slots take part in every product and a row's coefficients are zero for all slots but its own
(EGGROLL, arXiv 2511.16652, section 3, computes the same side path for one member a row). So the number of
torch operations of a layer is fixed, whatever the members, and a batch's composition costs nothing but its
coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seedbed_server.engine.address import Address
from seedbed_server.engine.slots import LinearFactors, NormFactors, SlotTable, VocabularyFactors

__all__ = ["Rows", "embed_", "head_", "linear_", "norm_", "rows_of"]


@dataclass(frozen=True)
class Rows:
    """What each row of a batch adds: coefficients [rows, slots], zero but for one place.

    Attributes:
        matrix: signed sigma / 8, for products of two factors of variance 8; float32.
        vector: signed sigma / sqrt(8), for one factor of variance 8; float32.
    """

    matrix: Tensor
    vector: Tensor

    def repeat(self, lengths: Sequence[int]) -> Rows:
        """Each row as often as its request has tokens."""
        times = torch.tensor(lengths, device=self.matrix.device)
        return Rows(self.matrix.repeat_interleave(times, 0), self.vector.repeat_interleave(times, 0))

    def select(self, index: Tensor) -> Rows:
        """The rows of these indices, in their order."""
        return Rows(self.matrix[index], self.vector[index])

    def slice(self, start: int, stop: int) -> Rows:
        """Rows [start, stop)."""
        return Rows(self.matrix[start:stop], self.vector[start:stop])

    def __len__(self) -> int:
        return self.matrix.shape[0]


def rows_of(addresses: Sequence[Address], table: SlotTable) -> Rows | None:
    """Coefficients of a batch's requests; None where nothing is perturbed."""
    perturbed = [(i, a) for i, a in enumerate(addresses) if a.sigma]
    if not perturbed:
        return None
    slots = table.acquire(a.seed for _, a in perturbed)
    sigma = torch.zeros(len(addresses), table.count, dtype=torch.float64)
    for row, address in perturbed:
        sigma[row, slots[address.seed]] = address.sigma
    matrix, vector = sigma / 8, sigma / math.sqrt(8)
    # float32 also where the weights are bfloat16: there 1 + sigma eps would mostly be 1.
    return Rows(matrix.to(table.device, torch.float32), vector.to(table.device, torch.float32))


def linear_(y: Tensor, x: Tensor, factors: LinearFactors, rows: Rows, bias: bool) -> None:
    """Adds to y [rows, m] what the perturbation adds for inputs x [rows, n]."""
    t = x @ factors.b.t()
    if len(factors.parts) == 1:
        y.addmm_(t.mul_(rows.matrix), factors.a)
    else:
        slots = rows.matrix.shape[1]
        t.view(len(rows), -1, slots).mul_(rows.matrix[:, None])
        for j, (first, last) in enumerate(factors.parts):
            y[:, first:last].addmm_(t[:, j * slots : (j + 1) * slots], factors.a[:, first:last])
    if bias and factors.bias is not None:
        y.add_(rows.vector @ factors.bias.float())


def embed_(y: Tensor, ids: Tensor, factors: VocabularyFactors, rows: Rows) -> None:
    """Adds to the embeddings y [rows, n] of tokens ids [rows]."""
    y.addmm_((factors.a.index_select(1, ids).t() * rows.matrix).to(y.dtype), factors.b)


def head_(y: Tensor, x: Tensor, factors: VocabularyFactors, rows: Rows) -> None:
    """Adds to the logits y [rows, padded vocabulary] of states x [rows, n]."""
    y.addmm_((x @ factors.b.t()).mul_(rows.matrix), factors.a)


def norm_(y: Tensor, factors: NormFactors, rows: Rows) -> None:
    """Scales a norm's output y, [rows, n] or [rows (x) heads, n], by 1 + sigma eps."""
    scale = (rows.vector @ factors.v.float()).add_(1)
    if y.numel() == scale.numel():
        y.mul_(scale.view(y.shape))
    else:
        y.view(len(rows), -1, scale.shape[1]).mul_(scale[:, None])
