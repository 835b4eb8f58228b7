"""What the learner computes, in NumPy: estimators, schedules, quantisation, and one whole step.

Plain on purpose: whole arrays, the textbook formula, no care for overflow. Nothing of the product is imported
here. Rewards are arrays [members, episodes] with an array of groups of the same shape where groups matter.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
Groups = npt.NDArray[np.str_]


def zscore(rewards: F64) -> F64:
    r = rewards.mean(axis=1)
    z: F64 = (r - r.mean()) / r.std()
    return z


def centered_rank(rewards: F64) -> F64:
    r = rewards.mean(axis=1)
    ranks: F64 = np.array([np.mean(np.flatnonzero(np.isclose(np.sort(r), x, rtol=0, atol=1e-11))) for x in r])
    return ranks / (len(r) - 1) - 0.5


def group_relative(rewards: F64, groups: Groups) -> F64:
    """Every member must have as many episodes in a group as every other one that has any."""
    advantage = rewards.copy()
    for group in np.unique(groups):
        advantage[groups == group] -= rewards[groups == group].mean()
    a = advantage.mean(axis=1)
    w: F64 = a / np.sqrt((a**2).mean())
    return w


def raw(rewards: F64) -> F64:
    r: F64 = rewards.mean(axis=1)
    return r


@dataclass
class PastRewards:
    """All rewards of old: the running mean is the mean of the list."""

    by_group: dict[str, list[float]] = field(default_factory=dict)

    def add(self, rewards: F64, groups: Groups) -> None:
        for group, reward in zip(groups.ravel(), rewards.ravel(), strict=True):
            self.by_group.setdefault(str(group), []).append(float(reward))

    def baseline(self, group: str, prior: float) -> float:
        everything = [reward for rewards in self.by_group.values() for reward in rewards]
        if not everything:
            return 0.0
        known = self.by_group.get(group, [])
        return float((np.sum(known) + prior * np.mean(everything)) / (len(known) + prior))

    def weights(self, rewards: F64, groups: Groups, prior: float = 1.0) -> F64:
        return zscore(rewards - np.vectorize(lambda group: self.baseline(group, prior))(groups))


def weighted_zscore(values: F64, weights: F64) -> F64:
    centre = np.average(values, weights=weights)
    spread = np.sqrt(np.average((values - centre) ** 2, weights=weights))
    w: F64 = weights * (values - centre) / spread
    return w


def schedule(kind: str, start: float, floor: float, steps: int, warmup: int = 0) -> F64:
    """The values at versions 0 to steps - 1."""
    p = np.clip((np.arange(steps) - warmup) / max(1, steps - 1 - warmup), 0, 1)
    if kind == "cosine":
        values: F64 = floor + (start - floor) * 0.5 * (1 + np.cos(np.pi * p))
        return values
    if kind == "linear":
        return np.asarray(start + (floor - start) * p)
    return np.full(steps, start)


def seed(run_seed: int, population: int, direction: int) -> int:
    data = b"".join(n.to_bytes(8, "little") for n in (run_seed, population, direction))
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def quantised(coefficients: F64) -> tuple[npt.NDArray[np.int64], np.float32]:
    scale = np.float32(np.abs(coefficients).max() / 127)
    return np.rint(coefficients / np.float64(scale)).astype(np.int64), scale
