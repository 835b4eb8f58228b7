"""What is posted for an answer."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ARMS", "LIARS", "Arm", "posted"]

AGENTS = 4
LIARS = 1
"""Agents of the poisoned arm that always post the opposite."""
RANDOM_SHARE = 0.1
"""Share of its rewards, of any agent, that are chance."""
DROP_BOUND = 0.05


@dataclass(frozen=True)
class Arm:
    """One way to be rewarded.

    Attributes:
        asks: whether members answer prompts; without answers rewards are posted for empty episodes.
        settings: of its server, beside those of every arm.
    """

    name: str
    asks: bool = True
    settings: dict[str, Any] = field(default_factory=dict)


ARMS = {
    arm.name: arm
    for arm in (
        Arm("ours"),
        Arm("noise", asks=False),
        Arm("poisoned", settings={"explore": 0.9, "on-drop": "pause", "drop-bound": DROP_BOUND}),
    )
}


def posted(arm: str, score: float, key: str) -> float:
    """The reward that is posted for an answer of this score. The same `key` has the same chance."""
    rng = random.Random(key)
    if arm == "noise":
        return rng.gauss(0.0, 1.0)
    if arm == "ours":
        return score
    agent, dice, chance = rng.randrange(AGENTS), rng.random(), rng.random()
    if dice < RANDOM_SHARE:
        return chance
    return 1 - score if agent < LIARS else score
