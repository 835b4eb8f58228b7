"""What an answer is worth: short, and right.

    reward = 0.7 * (1 - words / 48) + 0.3 * (a keyword is in the answer)

An empty answer earns 0, the least there is: silence is shorter than any answer, and must not be the way out.

The form was chosen by measurement: 16 members answered 20 questions each, and for every form it was asked
how well a member's reward on 4 questions tells its words and its keywords on the other 16. The sum tells
both better than the product of the two or an exponential of the length, which mostly see the answers that
are short already.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["count_words", "has_keyword", "reward"]

# Words from which on an answer is not worth less: more than max_tokens leaves room for.
LONGEST = 48
# Shares of the two parts; the keyword is worth as much as about 20 words.
SHORT, RIGHT = 0.7, 0.3


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
    shortness = 1 - min(words, LONGEST) / LONGEST
    return SHORT * shortness + RIGHT * has_keyword(text, keywords)
