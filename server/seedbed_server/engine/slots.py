"""Slots: resident places for the factors of one seed each.

A slot holds a seed's factors in the live dtype, in which the noise's small integers are exact, so that a
matrix product reads them as they are. The signed sigma belongs to the row of a request, not to the slot:
mirrored members share a slot. Slots are filled on demand while a batch is built; any seed that is not in
that batch may be evicted, and as there are at least as many slots as running requests, nobody waits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from seedbed_server.engine.layout import Coverage, Kind, Layout, Parameter, Site
from seedbed_server.noise import Factor, Plan, Segment

__all__ = ["Factors", "LinearFactors", "NormFactors", "SlotTable", "VocabularyFactors"]


@dataclass(frozen=True)
class LinearFactors:
    """Factors of one linear module that holds P checkpoint matrices, for S slots.

    Attributes:
        a: [S, m], m being the rows of all parts.
        b: [P * S, n], part by part.
        bias: [S, m], or None.
        parts: first and last row of each part.
    """

    a: Tensor
    b: Tensor
    bias: Tensor | None
    parts: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class VocabularyFactors:
    """Factors of an embedding or head: a [S, rows with padding], b [S, n]."""

    a: Tensor
    b: Tensor


@dataclass(frozen=True)
class NormFactors:
    """Factors of a norm weight: v [S, n]."""

    v: Tensor


Factors = LinearFactors | VocabularyFactors | NormFactors


class SlotTable:
    """Which seed is in which slot, and the factors themselves.

    Args:
        layout: the model.
        count: number of slots.
    """

    def __init__(self, layout: Layout, count: int) -> None:
        first = layout.parameters[0].data
        self.count, self.device, self.dtype = count, first.device, first.dtype
        self._segments: list[Segment] = []
        self._targets: list[list[Tensor]] = [[] for _ in range(count)]
        self.factors = {id(site.module): self._allocate(site) for site in layout.sites}
        self._plan = Plan(self._segments, self.device)
        self._lengths = [len(s) for s in self._segments]
        self._resident: OrderedDict[int, int] = OrderedDict()
        self.fills = 0
        """How often a slot was filled: as long as it stays, every seed is where it was."""

    @property
    def bytes(self) -> int:
        """Memory that the factors take."""
        tensors = [t for f in self.factors.values() for t in vars(f).values() if isinstance(t, Tensor)]
        return sum(t.numel() * t.element_size() for t in tensors)

    @property
    def resident(self) -> int:
        """Seeds that have a slot."""
        return len(self._resident)

    def acquire(self, seeds: Iterable[int]) -> dict[int, int]:
        """Slot of each seed; makes the missing ones, in the places of those used least recently.

        Raises ValueError when more distinct seeds are asked for than there are slots.
        """
        wanted = dict.fromkeys(seeds)
        if len(wanted) > self.count:
            raise ValueError(f"seeds: {len(wanted)} in one batch, but there are {self.count} slots")
        for seed in wanted:
            if seed in self._resident:
                self._resident.move_to_end(seed)
        for seed in wanted:
            if seed not in self._resident:
                if len(self._resident) < self.count:
                    slot = len(self._resident)
                else:
                    _, slot = self._resident.popitem(last=False)
                self._fill(slot, seed)
                self._resident[seed] = slot
        return {seed: self._resident[seed] for seed in wanted}

    def _fill(self, slot: int, seed: int) -> None:
        self.fills += 1
        values = self._plan.draw(seed).to(self.dtype)
        torch._foreach_copy_(self._targets[slot], list(torch.split(values, self._lengths)))

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def _add(self, parameter: Parameter, factor: Factor, length: int, targets: Iterable[Tensor]) -> None:
        if parameter.coverage is Coverage.EXCLUDED:
            return
        self._segments.append(Segment(parameter.name, factor, 0, length))
        for held, target in zip(self._targets, targets, strict=True):
            held.append(target)

    def _allocate(self, site: Site) -> Factors:
        if site.kind is Kind.NORM:
            (weight,) = site.weights
            v = self._zeros(self.count, *weight.shape)
            self._add(weight, Factor.VECTOR, weight.shape[0], v)
            return NormFactors(v)
        if site.kind is Kind.VOCABULARY:
            (weight,) = site.weights
            rows, columns = weight.shape
            padded = site.held_rows
            a, b = self._zeros(self.count, padded), self._zeros(self.count, columns)
            self._add(weight, Factor.A, rows, a[:, :rows])
            self._add(weight, Factor.B, columns, b)
            return VocabularyFactors(a, b)
        return self._linear(site)

    def _linear(self, site: Site) -> LinearFactors:
        columns = site.weights[0].shape[1]
        ends, total = [], 0
        for weight in site.weights:
            ends.append((total, total + weight.shape[0]))
            total += weight.shape[0]
        a, b = self._zeros(self.count, total), self._zeros(len(ends), self.count, columns)
        bias = self._zeros(self.count, total) if site.biases else None
        for j, (weight, (first, last)) in enumerate(zip(site.weights, ends, strict=True)):
            self._add(weight, Factor.A, last - first, a[:, first:last])
            self._add(weight, Factor.B, columns, b[j])
            if bias is not None:
                self._add(site.biases[j], Factor.VECTOR, last - first, bias[:, first:last])
        return LinearFactors(a, b.view(-1, columns), bias, tuple(ends))
