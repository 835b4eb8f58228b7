"""Why a population makes no step: a closed set of codes, each with a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["NO_STEP"]

NO_STEP: Final[Mapping[str, str]] = MappingProxyType(
    {
        "no_rewards": "no member has a reward",
        "one_survivor": "only one member has a reward: there is nothing to compare it with",
        "too_few_members": "fewer members have a reward than the quorum asks for",
        "no_spread": "all members did equally well: nothing says where to go",
        "no_common_group": "no two members worked on the same group: nothing can be compared within one",
        "no_direction": "the members of each seed cancel out: mirrored members did equally well",
        "no_alpha": "alpha is 0: the population explores and nothing is learnt",
        "out_of_range": "the weights are too large or small for float32: use an estimator that normalises",
    }
)
"""Sentence by code. A code ends up in the store, in the status and in the metrics: none is ever renamed."""
