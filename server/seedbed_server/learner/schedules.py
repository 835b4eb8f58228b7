"""How sigma and alpha move, with the version or with the date.

Every schedule is a pure function of where it stands, so it goes on exactly after a restart. Three shapes,
with p going from 0 to 1 between the end of the warm-up and the end of the schedule, and held at both sides:

    cosine    floor + (start - floor) (1 + cos(pi p)) / 2    (Agentic ESOpt, arXiv 2608.17310, section 3.1)
    linear    start + (floor - start) p
    constant  start; a warm-up changes nothing, and the floor is only a check

p = 0 gives exactly `start`, p = 1 exactly `floor`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

__all__ = [
    "DatedSchedule",
    "Schedule",
    "constant",
    "constant_by_date",
    "cosine",
    "cosine_by_date",
    "linear",
    "linear_by_date",
]

Schedule: TypeAlias = Callable[[int], float]
"""The value for the step that starts at a version (0, 1, 2, ...)."""

DatedSchedule: TypeAlias = Callable[[float], float]
"""The value at a time, in seconds since the epoch. Two calls with one time give one value: whoever needs the
value again keeps it, or the time that it was asked for."""

_Shape: TypeAlias = Callable[[float, float, float], float]


def constant(value: float, floor: float = 0.0, steps: int = 1, warmup: int = 0) -> Schedule:
    """The same value at every version. Takes what the other schedules take, so that they can be exchanged.

    Raises ValueError if the value is negative or not finite, or below the floor.
    """
    return _by_version(_constant, value, floor, steps, warmup)


def cosine(start: float, floor: float, steps: int, warmup: int = 0) -> Schedule:
    """Half a cosine from `start` to `floor` over `steps` steps, and `floor` from then on.

    p = (t - warmup) / (steps - 1 - warmup): the first `warmup` + 1 steps have exactly `start`, step number
    `steps` (version steps - 1) and every later one exactly `floor`. Raises ValueError for values that are not
    finite or negative, a floor above the start, or a warm-up that leaves no step to decay.
    """
    return _by_version(_cosine, start, floor, steps, warmup)


def linear(start: float, floor: float, steps: int, warmup: int = 0) -> Schedule:
    """A straight line from `start` to `floor`; steps, warm-up and errors as in `cosine`."""
    return _by_version(_linear, start, floor, steps, warmup)


def constant_by_date(
    value: float, floor: float = 0.0, begin: float = 0.0, end: float = 1.0, warmup: float = 0.0
) -> DatedSchedule:
    """The same value at every time; arguments and errors as in `cosine_by_date`."""
    return _by_date(_constant, value, floor, begin, end, warmup)


def cosine_by_date(
    start: float, floor: float, begin: float, end: float, warmup: float = 0.0
) -> DatedSchedule:
    """Half a cosine from `start` at begin + warmup to `floor` at end; times in seconds since the epoch.

    p = (t - begin - warmup) / (end - begin - warmup): exactly `start` until begin + warmup, exactly `floor`
    from end on. Time that passes without an update moves it too. Raises ValueError for values that are not
    finite or negative, a floor above the start, an end that is not after the begin, or a warm-up that does
    not fit between them.
    """
    return _by_date(_cosine, start, floor, begin, end, warmup)


def linear_by_date(
    start: float, floor: float, begin: float, end: float, warmup: float = 0.0
) -> DatedSchedule:
    """A straight line from `start` at begin + warmup to `floor` at end; errors as in `cosine_by_date`."""
    return _by_date(_linear, start, floor, begin, end, warmup)


def _by_version(shape: _Shape, start: float, floor: float, steps: int, warmup: int) -> Schedule:
    _check_values(start, floor)
    if steps < 1:
        raise ValueError(f"steps: {steps} is not a length; use 1 or more")
    if not 0 <= warmup < steps:
        raise ValueError(f"warmup: {warmup} does not fit into {steps} steps; use 0 to {steps - 1}")
    last = steps - 1

    def value(version: int) -> float:
        if version >= last:
            return shape(start, floor, 1.0)
        if version <= warmup:
            return start
        return shape(start, floor, (version - warmup) / (last - warmup))

    return value


def _by_date(
    shape: _Shape, start: float, floor: float, begin: float, end: float, warmup: float
) -> DatedSchedule:
    _check_values(start, floor)
    for name, given in (("begin", begin), ("end", end), ("warmup", warmup)):
        if not math.isfinite(given):
            raise ValueError(f"{name}: {given} is not a time; use seconds since the epoch")
    if end <= begin:
        raise ValueError(f"end: {end} is not after the begin {begin}; use a later date")
    if not 0 <= warmup < end - begin:
        raise ValueError(f"warmup: {warmup} s does not fit into {end - begin} s; use 0 or more, and less")
    first = begin + warmup

    def value(now: float) -> float:
        if now >= end:
            return shape(start, floor, 1.0)
        if now <= first:
            return start
        return shape(start, floor, (now - first) / (end - first))

    return value


def _constant(start: float, _floor: float, _progress: float) -> float:
    return start


def _cosine(start: float, floor: float, progress: float) -> float:
    if progress == 1.0:
        return floor
    return floor + (start - floor) * (1.0 + math.cos(math.pi * progress)) / 2.0


def _linear(start: float, floor: float, progress: float) -> float:
    # From the floor upwards: never below it by a rounding.
    return floor + (start - floor) * (1.0 - progress)


def _check_values(start: float, floor: float) -> None:
    for name, value in (("start", start), ("floor", floor)):
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"{name}: {value} cannot be scheduled; use a finite number of at least 0")
    if floor > start:
        raise ValueError(f"floor: {floor} is above the start {start}; use a floor of at most the start")
