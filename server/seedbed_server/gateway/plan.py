"""What the settings say about learning, as the learner's own terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from seedbed.v1 import engine_pb2 as pb
from seedbed_server.learner import Estimator, Population, Schedule, constant, cosine, open_population, zscore

if TYPE_CHECKING:
    from seedbed_server.config import ServeSettings

__all__ = ["Plan", "plan_from"]


@dataclass(frozen=True)
class Plan:
    """How populations are made and closed."""

    size: int
    episodes_per_member: int
    mirrored: bool
    run_seed: int
    sigma: Schedule
    alpha: Schedule
    estimator: Estimator
    rounding: pb.Rounding

    def population(self, number: int, version: int) -> Population:
        """A new population at a version."""
        return open_population(
            number=number,
            version=version,
            sigma=self.sigma(version),
            size=self.size,
            episodes_per_member=self.episodes_per_member,
            mirrored=self.mirrored,
            run_seed=self.run_seed,
        )


def plan_from(settings: ServeSettings) -> Plan:
    """The plan of these settings."""

    def schedule(kind: str, start: float, floor: float) -> Schedule:
        if kind == "constant":
            return constant(start)
        return cosine(start, floor, settings.total_updates, settings.warmup_updates)

    nearest = settings.rounding == "nearest"
    return Plan(
        size=settings.population_size,
        episodes_per_member=settings.episodes_per_member,
        mirrored=settings.sampling == "mirrored",
        run_seed=settings.run_seed,
        sigma=schedule(settings.sigma_schedule, settings.sigma, settings.sigma_floor),
        alpha=schedule(settings.alpha_schedule, settings.alpha, settings.alpha_floor),
        estimator=zscore,
        rounding=pb.ROUNDING_NEAREST if nearest else pb.ROUNDING_STOCHASTIC,
    )
