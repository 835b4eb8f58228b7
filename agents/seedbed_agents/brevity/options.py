"""The settings of the demo: what a user may choose, and what it runs with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["DemoOptions", "Recipe", "recipe_of"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that the result of a demo depends on; an interrupted demo goes on only with an equal one."""

    model: str
    """What `--model` takes: a known name, a local folder or a hub id."""
    updates: int
    members: int = 16
    questions_per_population: int = 4
    """Each member answers each of them once."""
    sigma: float = 5e-3
    sigma_floor: float = 3e-3
    alpha: float = 1e-2
    seed: int = 1
    """Of the members' seeds and of the order of the questions."""
    max_tokens: int = 48
    measure_every: int = 4
    """Updates between two looks at the unperturbed model."""
    measure_questions: int = 8
    """Held-out questions of such a look; the first and the last one take all."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What `seedbed demo` was told."""

    json_path: Path | None = None
    """Where the results go as JSON."""
    updates: int | None = None
    """Updates to make; None: the recipe's own number."""
    quick: bool = False
    """Half the updates: shows the way, and may miss the bar."""
    store: Path | None = None
    """Directory of this run; None: the demo keeps its own below the cache directory."""
    model: str = "smollm2"
    port: int = 0
    """Port of the server on loopback; 0: a free one."""

    def __post_init__(self) -> None:
        if self.updates is not None and self.updates < 1:
            raise ValueError(f"updates: {self.updates} teaches nothing; use 1 or more")
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port: {self.port} is not a port; use 1 to 65535, or 0 for a free one")


UPDATES = 14
QUICK_UPDATES = 7


def recipe_of(options: DemoOptions) -> Recipe:
    """The recipe of a demo with these options."""
    updates = options.updates or (QUICK_UPDATES if options.quick else UPDATES)
    return Recipe(model=options.model, updates=updates)
