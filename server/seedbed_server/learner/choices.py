"""Estimators and schedules by name, with options that are checked: from a configuration to functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from seedbed_server.learner.estimators import Estimator, centered_rank, clipped, raw, zscore
from seedbed_server.learner.groups import group_relative
from seedbed_server.learner.history import History, group_baseline
from seedbed_server.learner.schedules import (
    DatedSchedule,
    Schedule,
    constant,
    constant_by_date,
    cosine,
    cosine_by_date,
    linear,
    linear_by_date,
)

__all__ = [
    "ESTIMATORS",
    "SCHEDULES",
    "EstimatorChoice",
    "ScheduleChoice",
    "dated_schedule",
    "estimator",
    "schedule",
]

Options = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class EstimatorChoice:
    """One estimator that a configuration can name."""

    meaning: str
    """One line for people."""
    options: tuple[str, ...]
    uses_history: bool
    """Whether a history has to be kept for it (`history.observe`)."""
    make: Callable[[Options, History], Estimator]


@dataclass(frozen=True, slots=True)
class ScheduleChoice:
    """One schedule that a configuration can name."""

    meaning: str
    """One line for people."""
    by_version: Callable[[float, float, int, int], Schedule]
    by_date: Callable[[float, float, float, float, float], DatedSchedule]


def estimator(name: str, options: Options | None = None, history: History | None = None) -> Estimator:
    """The estimator of a name. Options: `clip` (a number above 0) for all, `prior` for group-baseline.

    `history` is read by group-baseline only; none is an empty one. Raises ValueError for a name or an option
    that is not known, or a value that an option cannot have.
    """
    options = options or {}
    choice = ESTIMATORS.get(name)
    if choice is None:
        raise ValueError(f"estimator: {name!r} is not known; use one of {', '.join(ESTIMATORS)}")
    _check_names("estimator", name, options, choice.options)
    made = choice.make(options, history or History())
    return clipped(made, _number("estimator.clip", options["clip"])) if "clip" in options else made


def schedule(name: str, options: Options) -> Schedule:
    """The schedule of a name, by version: `start` and, for all but constant, `floor` and `steps` are
    required; `warmup` is 0 without a word. Raises ValueError as `estimator` does.
    """
    found = _choice(name)
    _check_names("schedule", name, options, ("start", "floor", "steps", "warmup"))
    required = ("start",) if name == "constant" else ("start", "floor", "steps")
    _check_required(name, options, required)
    warmup = _count("schedule.warmup", options.get("warmup", 0))
    return found.by_version(
        _number("schedule.start", options["start"]),
        _number("schedule.floor", options.get("floor", 0.0)),
        _count("schedule.steps", options.get("steps", warmup + 1)),
        warmup,
    )


def dated_schedule(name: str, options: Options) -> DatedSchedule:
    """The schedule of a name, by date: as `schedule`, with `begin` and `end` in seconds since the epoch for
    `steps`, and `warmup` in seconds.
    """
    found = _choice(name)
    _check_names("schedule", name, options, ("start", "floor", "begin", "end", "warmup"))
    _check_required(name, options, ("start", "floor", "begin", "end"))
    return found.by_date(
        _number("schedule.start", options["start"]),
        _number("schedule.floor", options["floor"]),
        _number("schedule.begin", options["begin"]),
        _number("schedule.end", options["end"]),
        _number("schedule.warmup", options.get("warmup", 0.0)),
    )


def _fixed(made: Estimator) -> Callable[[Options, History], Estimator]:
    return lambda _options, _history: made


def _from_history(options: Options, history: History) -> Estimator:
    return group_baseline(history, _number("estimator.prior", options.get("prior", 1.0)))


ESTIMATORS: Final[Mapping[str, EstimatorChoice]] = MappingProxyType(
    {
        "zscore": EstimatorChoice(
            "Rewards less their mean, over their spread.", ("clip",), uses_history=False, make=_fixed(zscore)
        ),
        "centered-rank": EstimatorChoice(
            "Only the order of the members counts.", ("clip",), uses_history=False, make=_fixed(centered_rank)
        ),
        "group-relative": EstimatorChoice(
            "Rewards less the mean of their group in this population, over one spread.",
            ("clip",),
            uses_history=False,
            make=_fixed(group_relative),
        ),
        "group-baseline": EstimatorChoice(
            "Rewards less what their group has earned so far, less their mean, over their spread.",
            ("clip", "prior"),
            uses_history=True,
            make=_from_history,
        ),
        "raw": EstimatorChoice("Rewards as they are.", ("clip",), uses_history=False, make=_fixed(raw)),
    }
)

SCHEDULES: Final[Mapping[str, ScheduleChoice]] = MappingProxyType(
    {
        "cosine": ScheduleChoice("Half a cosine from start to floor.", cosine, cosine_by_date),
        "linear": ScheduleChoice("A straight line from start to floor.", linear, linear_by_date),
        "constant": ScheduleChoice("Always the start.", constant, constant_by_date),
    }
)


def _choice(name: str) -> ScheduleChoice:
    if name not in SCHEDULES:
        raise ValueError(f"schedule: {name!r} is not known; use one of {', '.join(SCHEDULES)}")
    return SCHEDULES[name]


def _check_names(kind: str, name: str, options: Options, known: tuple[str, ...]) -> None:
    for option in options:
        if option not in known:
            raise ValueError(f"{kind}.{option}: {name!r} has no such option; use {', '.join(known)}")


def _check_required(name: str, options: Options, required: tuple[str, ...]) -> None:
    for option in required:
        if option not in options:
            raise ValueError(f"schedule.{option}: {name!r} has none; give {', '.join(required)}")


def _number(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{field}: {value!r} is not a number; use a finite one")
    return float(value)


def _count(field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{field}: {value!r} is not a count; use a whole number, 0 or more")
    return value
