"""Intervals for differences that are paired over seeds and prompts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Interval", "interval"]


@dataclass(frozen=True)
class Interval:
    """A mean with the bounds of its 95 % interval."""

    mean: float
    low: float
    high: float


def interval(differences: npt.ArrayLike, *, resamples: int = 10_000, seed: int = 0) -> Interval:
    """Of differences [seeds, prompts]: hierarchical bootstrap, percentiles.

    Each resample draws seeds with replacement, and for each of them prompts with replacement (Davison and
    Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8, strategy 2). With few seeds the
    interval is narrower than it should be: a resample of three seeds can only say what those three did.
    """
    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"differences: shape {values.shape}; give [seeds, prompts], none of them 0")
    rng = np.random.default_rng(seed)
    seeds, prompts = values.shape
    rows = rng.integers(0, seeds, (resamples, seeds, 1))
    columns = rng.integers(0, prompts, (resamples, seeds, prompts))
    means = values[rows, columns].mean(axis=(1, 2))
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(float(values.mean()), float(low), float(high))
