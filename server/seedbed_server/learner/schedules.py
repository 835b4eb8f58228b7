"""How sigma and alpha move with the version."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Schedule", "constant", "cosine"]

Schedule: TypeAlias = Callable[[int], float]
"""The value for the step that starts at a version (0, 1, 2, ...). Pure, so it goes on exactly after a
restart."""


def constant(value: float) -> Schedule:
    """The same value at every version. Raises ValueError if it is not finite or negative."""
    _check("value", value)
    return lambda _version: value


def cosine(start: float, floor: float, steps: int, warmup: int = 0) -> Schedule:
    """Half a cosine from `start` to `floor` over `steps` steps, and `floor` from then on.

    value(t) = floor + (start - floor) (1 + cos(pi p)) / 2,  p = (t - warmup) / (steps - 1 - warmup)

    held within 0 <= p <= 1: the first `warmup` + 1 steps have exactly `start`, step number `steps` (version
    steps - 1) and every later one exactly `floor`. (The schedule of Agentic ESOpt, arXiv 2608.17310, section
    3.1.) Raises ValueError for values that are not finite or negative, a floor above the start, or a warm-up
    that leaves no step to decay.
    """
    _check("start", start)
    _check("floor", floor)
    if floor > start:
        raise ValueError(f"floor: {floor} is above the start {start}; use a floor of at most the start")
    if steps < 1:
        raise ValueError(f"steps: {steps} is not a length; use 1 or more")
    if not 0 <= warmup < steps:
        raise ValueError(f"warmup: {warmup} does not fit into {steps} steps; use 0 to {steps - 1}")
    last = steps - 1

    def value(version: int) -> float:
        if version >= last:
            return floor
        if version <= warmup:
            return start
        progress = (version - warmup) / (last - warmup)
        return floor + (start - floor) * (1.0 + math.cos(math.pi * progress)) / 2.0

    return value


def _check(name: str, value: float) -> None:
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name}: {value} cannot be scheduled; use a finite number of at least 0")
