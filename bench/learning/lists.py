"""List exactly n items: a task that a program can judge.

    score = max(0, 1 - (|n - good| + other / 2) / n)

`good` lines name one thing each, in at most four words, and no two the same; `other` counts all other lines:
what was said already, sentences, introductions. An empty answer earns 0. Whether the things are what was
asked for is not judged.
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
    other = 0
    for line in text.splitlines():
        thing = _MARK.sub("", line).strip(" .*_").lower()
        if not thing:
            continue
        if len(thing.split()) > _MOST_WORDS or thing.endswith(":") or thing in things:
            other += 1
        else:
            things.add(thing)
    return max(0.0, 1 - (abs(count - len(things)) + other / 2) / count)


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
