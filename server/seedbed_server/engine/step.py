"""The numbers of an update record, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from seedbed_server.noise import NOISE_VERSION, check_seed

__all__ = ["Step", "StepError"]

_MOST_MEMBERS = 1 << 16
"""127 * 256 * 65,536 < 2^31: so many members sum exactly in int32."""


class StepError(ValueError):
    """A step that cannot be applied; the message names the field, the value and the remedy."""


@dataclass(frozen=True)
class Step:
    """What an update record says, in numbers.

    Attributes:
        version: the version that it makes; the key of stochastic rounding.
        seeds: distinct seeds, each in [0, 2^64).
        coefficients: one integer in [-127, 127] for each seed.
        matrix_multiplier, vector_multiplier: float32 numbers; see seedbed.v1.UpdateRecord.
        stochastic: round bfloat16 weights with random bits instead of to nearest.
        decay: share of the way back to the base weights that the step goes, a float32 number in [0, 1).
    """

    version: int
    seeds: tuple[int, ...]
    coefficients: tuple[int, ...]
    matrix_multiplier: float
    vector_multiplier: float
    stochastic: bool
    noise_version: int = NOISE_VERSION
    rank: int = 1
    decay: float = 0.0

    def __post_init__(self) -> None:
        if self.version < 1:
            raise StepError(f"version: {self.version} is made by no update; the first update makes version 1")
        if self.noise_version != NOISE_VERSION:
            raise StepError(
                f"noise_version: {self.noise_version} is not spoken here (this is {NOISE_VERSION}); "
                "replay with the release that wrote it"
            )
        if self.rank != 1:
            raise StepError(f"rank: {self.rank} is not supported; use 1")
        if not self.seeds:
            raise StepError("seeds: none given; an update needs at least one")
        if len(self.seeds) > _MOST_MEMBERS:
            raise StepError(f"seeds: {len(self.seeds)} given; an update takes at most {_MOST_MEMBERS}")
        for seed in self.seeds:
            try:
                check_seed(seed)
            except ValueError as error:
                raise StepError(str(error)) from None
        self._check_coefficients()
        for name in ("matrix_multiplier", "vector_multiplier", "decay"):
            value = getattr(self, name)
            if not math.isfinite(value):
                raise StepError(f"{name}: {value} is not finite; lower alpha")
            if torch.tensor(value, dtype=torch.float32).item() != value:
                raise StepError(f"{name}: {value!r} is no float32 number; fold it to float32 first")
        if not 0 <= self.decay < 1:
            raise StepError(f"decay: {self.decay:g} is no share of the way to the base; use 0 to below 1")

    def _check_coefficients(self) -> None:
        if len(set(self.seeds)) != len(self.seeds):
            raise StepError("seeds: one is given twice; add the coefficients of a seed into one")
        if len(self.coefficients) != len(self.seeds):
            raise StepError(
                f"coefficients: {len(self.coefficients)} for {len(self.seeds)} seeds; give one for each seed"
            )
        if any(not -127 <= c <= 127 for c in self.coefficients):
            raise StepError("coefficients: one is outside -127 to 127; quantise them against their largest")
