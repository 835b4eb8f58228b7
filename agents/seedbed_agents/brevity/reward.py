"""What an answer is worth: short, and right.

    reward = exp(-words / 12) * (1 if a keyword is in the answer else 0.3)

An empty answer earns 0, the least there is: silence is shorter than any answer, and must not be the way out.
The exponential keeps paying for brevity at every length: from 40 to 20 words as well as from 12 to 6.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["count_words", "has_keyword", "reward"]

# The length, in words, at which an answer is worth 1/e of the shortest one.
SCALE = 12.0
# What is left of the reward when no keyword is in the answer.
WRONG = 0.3


def count_words(text: str) -> int:
    """Runs of characters between white space."""
    return len(text.split())


def has_keyword(text: str, keywords: Sequence[str]) -> bool:
    """Whether a keyword (lower case, one or more words) is in the text as whole words, in any case."""
    spaced = " ".join(text.lower().split())
    return any(re.search(rf"(?<!\w){re.escape(keyword)}(?!\w)", spaced) for keyword in keywords)


def reward(text: str, keywords: Sequence[str]) -> float:
    """The reward of one answer, 0 to 1."""
    words = count_words(text)
    if words == 0:
        return 0.0
    return math.exp(-words / SCALE) * (1.0 if has_keyword(text, keywords) else WRONG)
