"""What the settings say about learning, as the learner's own terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from seedbed.v1 import engine_pb2 as pb
from seedbed_server.learner import (
    ESTIMATORS,
    Aggregation,
    Bounds,
    Closing,
    DropRules,
    Estimator,
    History,
    Limits,
    Population,
    StaleRules,
    dated_schedule,
    estimator,
    open_population,
    schedule,
)
from seedbed_server.learner.history import baseline_of

if TYPE_CHECKING:
    from seedbed_server.config import ServeSettings

__all__ = ["Moves", "Plan", "RewardRules", "plan_from"]

Moves: TypeAlias = Callable[[int, float], float]
"""A value by the number of updates made so far, or by the time in seconds since the epoch."""


@dataclass(frozen=True)
class RewardRules:
    """What becomes of a posted reward."""

    aggregation: Aggregation = field(default_factory=Aggregation)
    bounds: Bounds = field(default_factory=Bounds)
    stale: StaleRules = field(default_factory=StaleRules)
    drop: DropRules | None = None
    """Of the guard over the controls; None: nobody watches."""
    roll_back: bool = False
    """What the guard asks for: to go back to the best version, not only to pause."""


@dataclass(frozen=True)
class Plan:
    """How populations are made and closed."""

    size: int
    episodes_per_member: int
    mirrored: bool
    run_seed: int
    reuse: int
    sigma: Moves
    alpha: Moves
    decay: Callable[[float], float]
    """Share of the way back to the base weights, by the alpha of the step."""
    estimator_name: str
    estimator_options: dict[str, object]
    prior: float
    history_memory: int | None
    history_groups: int
    closing: Closing
    rewards: RewardRules
    step_bound: float | None
    limits: Limits
    rounding: pb.Rounding

    @property
    def uses_history(self) -> bool:
        """Whether what groups earned before has to be kept."""
        return ESTIMATORS[self.estimator_name].uses_history

    def estimator(self, history: History) -> Estimator:
        """The estimator, which may compare with what groups earned before."""
        return estimator(self.estimator_name, self.estimator_options, history)

    def baseline(self, history: History) -> Callable[[str | None], float]:
        """What `group-baseline` expects of a group."""
        return lambda group: baseline_of(history, group, self.prior)

    def population(self, number: int, version: int, updates: int, now: float) -> Population:
        """A new population at a version that so many updates made."""
        return open_population(
            number=number,
            version=version,
            sigma=self.sigma(updates, now),
            size=self.size,
            episodes_per_member=self.episodes_per_member,
            mirrored=self.mirrored,
            run_seed=self.run_seed,
            reuse=self.reuse,
            opened_at=now,
        )


def plan_from(settings: ServeSettings) -> Plan:
    """The plan of these settings."""
    options: dict[str, object] = {} if settings.clip is None else {"clip": settings.clip}
    if "prior" in ESTIMATORS[settings.estimator].options:
        options["prior"] = settings.prior
    nearest = settings.rounding == "nearest"
    return Plan(
        size=settings.population_size,
        episodes_per_member=settings.episodes_per_member,
        mirrored=settings.sampling == "mirrored",
        run_seed=settings.run_seed,
        reuse=settings.noise_reuse,
        sigma=_moves(settings, settings.sigma_schedule, settings.sigma, settings.sigma_floor),
        alpha=_moves(settings, settings.alpha_schedule, settings.alpha, settings.alpha_floor),
        decay=_decay(settings.anchor_decay, settings.alpha),
        estimator_name=settings.estimator,
        estimator_options=options,
        prior=settings.prior,
        history_memory=settings.history_memory,
        history_groups=settings.history_groups,
        closing=Closing(settings.deadline_seconds, settings.quorum, settings.give_up_seconds),
        rewards=RewardRules(
            aggregation=Aggregation(settings.aggregation, settings.discount),
            bounds=Bounds(settings.reward_low, settings.reward_high, settings.reward_clip),
            stale=StaleRules(settings.stale_limit, settings.stale_weight),
            drop=None if settings.on_drop == "off" else _drop_rules(settings),
            roll_back=settings.on_drop == "rollback",
        ),
        step_bound=settings.step_bound,
        limits=Limits(settings.least_spread, settings.most_dropped, settings.most_truncated),
        rounding=pb.ROUNDING_NEAREST if nearest else pb.ROUNDING_STOCHASTIC,
    )


def _decay(share: float, start: float) -> Callable[[float], float]:
    """In proportion to alpha, so that a schedule that ends learning ends the decay too."""
    return lambda alpha: share * alpha / start if share and start else 0.0


def _moves(settings: ServeSettings, kind: str, start: float, floor: float) -> Moves:
    if kind == "constant":
        # A constant has no floor to check.
        floor = min(floor, start)
    begin, end = settings.schedule_begin, settings.schedule_end
    if begin is not None and end is not None:
        by_date = dated_schedule(
            kind,
            {
                "start": start,
                "floor": floor,
                "begin": begin.timestamp(),
                "end": end.timestamp(),
                "warmup": settings.warmup_seconds,
            },
        )
        return lambda _updates, now: by_date(now)
    by_updates = schedule(
        kind,
        {"start": start, "floor": floor, "steps": settings.total_updates, "warmup": settings.warmup_updates},
    )
    return lambda updates, _now: by_updates(updates)


def _drop_rules(settings: ServeSettings) -> DropRules:
    return DropRules(
        low=settings.drop_low,
        high=settings.drop_high,
        bound=settings.drop_bound,
        run_length=settings.drop_run_length,
        block=settings.drop_block,
        error=settings.drop_error,
    )
