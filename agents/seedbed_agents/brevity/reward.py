"""What an answer is worth: short, right and whole.

    reward = 0.3 * (1 - words / 48) + 0.5 * (a keyword is in it) + 0.2 * (it came to its end)

An empty answer earns 0, the least there is: silence is shorter than any answer, and must not be the way out.

The form was chosen by measurement: 16 members answered 20 questions each, and for every form it was asked how
well a member's reward on a few questions tells its words and its keywords on the others. A sum tells both
better than a product or an exponential of the length, which mostly see the answers that are short already.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["count_words", "has_keyword", "reward"]

# Words from which on an answer is not worth less: more than max_tokens leaves room for.
LONGEST = 48
# Shares of the three parts.
SHORT, RIGHT, WHOLE = 0.3, 0.5, 0.2


def count_words(text: str) -> int:
    """Runs of characters between white space."""
    return len(text.split())


def has_keyword(text: str, keywords: Sequence[str]) -> bool:
    """Whether a keyword (lower case, one or more words) is in the text as whole words, in any case."""
    spaced = " ".join(text.lower().split())
    return any(re.search(rf"(?<!\w){re.escape(keyword)}(?!\w)", spaced) for keyword in keywords)


def reward(text: str, keywords: Sequence[str], *, truncated: bool) -> float:
    """The reward of one answer, 0 to 1; `truncated`: it was cut by the limit of tokens."""
    words = count_words(text)
    if words == 0:
        return 0.0
    shortness = 1 - min(words, LONGEST) / LONGEST
    return SHORT * shortness + RIGHT * has_keyword(text, keywords) + WHOLE * (not truncated)
