"""List exactly n items: a task that a program can judge.

    score = (max(0, 1 - |good - n| / n) + good / lines) / 2

`good` lines name one thing each, in at most four words, and no two the same; the others are what was said
already, sentences, introductions. An empty answer earns 0. Whether the things are what was asked for is not
judged.

The form was chosen by measurement: 16 members answered 20 prompts each, and for six forms it was asked how
well a member's reward on half of the prompts tells that on the other half (0.42 for this one, 0.32 for one
that subtracts the other lines).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["HELD_OUT", "TRAINING", "Wanted", "score"]

_MARK = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s*")
_MOST_WORDS = 4


@dataclass(frozen=True)
class Wanted:
    """A number of things of one kind."""

    kind: str
    count: int

    @property
    def id(self) -> str:
        return f"{self.count}-{self.kind.replace(' ', '-')}"

    @property
    def text(self) -> str:
        return f"List exactly {self.count} {self.kind}, one per line."


def score(text: str, count: int) -> float:
    """What a list of `count` things is worth, 0 to 1."""
    things: set[str] = set()
    lines = 0
    for line in text.splitlines():
        thing = _MARK.sub("", line).strip(" .*_").lower()
        if not thing:
            continue
        lines += 1
        if len(thing.split()) <= _MOST_WORDS and not thing.endswith(":"):
            things.add(thing)
    if not lines:
        return 0.0
    return (max(0.0, 1 - abs(len(things) - count) / count) + len(things) / lines) / 2


def _spread(kinds: str, counts: tuple[int, ...]) -> tuple[Wanted, ...]:
    """Each kind with two numbers, the numbers as even as they can be."""
    return tuple(
        Wanted(kind.strip(), counts[(place + turn * 2) % len(counts)])
        for place, kind in enumerate(kinds.split(","))
        for turn in range(2)
    )


TRAINING = _spread(
    "fruits, animals, colours, sports, metals, vegetables, rivers, birds, planets, insects, drinks, spices, "
    "capital cities, kitchen tools, school subjects, months of the year, parts of the body, "
    "pieces of furniture, kinds of weather, means of transport",
    (3, 4, 5, 2),
)
HELD_OUT = _spread(
    "countries, trees, flowers, languages, musical instruments, shapes, jobs, kinds of fish, clothes, "
    "desserts, days of the week, board games, rooms of a house, oceans, gemstones, farm animals",
    (3, 4, 5, 2),
)
