"""What is shown while the demo runs: a live table on a terminal, plain lines elsewhere (a pipe, a CI log)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import RenderableType

__all__ = ["Display", "Row"]

# Versions on the screen while it runs, and seconds between two lines off a terminal.
ROWS = 14
LINE_SECONDS = 15.0


HEADINGS = ("version", "reward, raw", "words", "live score", "live words", "tok/s", "sigma", "seconds")


@dataclass(frozen=True, slots=True)
class Row:
    """One version and the population that made it; None where nothing is known."""

    version: int
    sigma: float
    # Raw rewards of the members.
    reward_mean: float | None
    reward_spread: float | None
    # Words per explored answer.
    words: float | None
    tokens_per_second: float
    seconds: float
    # The unperturbed live model on held-out questions, where it was asked: score and words.
    live: tuple[float, float] | None

    def cells(self) -> tuple[str, ...]:
        """One text for each of HEADINGS."""
        score, live_words = self.live or (None, None)
        return (
            str(self.version),
            f"{_number(self.reward_mean, 3)} ± {_number(self.reward_spread, 3)}",
            _number(self.words, 1),
            _number(score, 3),
            _number(live_words, 1),
            _number(self.tokens_per_second, 1),
            f"{self.sigma:.2e}",
            _number(self.seconds, 0),
        )


class Display:
    """One place on the screen: what is being done, and the versions so far."""

    def __init__(self, console: Console, updates: int) -> None:
        self.console = console
        self._updates = updates
        self._rows: list[Row] = []
        self._doing = ""
        self._spinner = Spinner("dots")
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4, transient=True)
        self._said = 0.0

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self.console.print(Text(text))

    def doing(self, text: str) -> None:
        """What is being done just now; off a terminal it is repeated only now and then."""
        self._doing = text
        if not self.console.is_terminal and time.monotonic() - self._said >= LINE_SECONDS:
            self._said = time.monotonic()
            self.console.print(Text(f"  {text}"))

    def add(self, row: Row) -> None:
        """A new version."""
        self._rows.append(row)
        if not self.console.is_terminal:
            self._said = time.monotonic()
            shown = "  ".join(
                f"{name} {cell}" for name, cell in zip(HEADINGS, row.cells(), strict=True) if cell
            )
            self.say(f"{shown}  left {_clock(self._left())}")

    def table(self, count: int | None = None) -> Table:
        """The last `count` versions, or all, the newest last."""
        table = Table(title=f"Learning: {self._updates} updates")
        for heading in HEADINGS:
            table.add_column(heading, justify="right")
        for row in self._rows[-count:] if count else self._rows:
            table.add_row(*row.cells())
        return table

    def _left(self) -> float:
        """Seconds that the remaining updates will take, going by the last three."""
        recent = self._rows[-3:]
        if not recent:
            return 0.0
        return (self._updates - recent[-1].version) * sum(row.seconds for row in recent) / len(recent)

    def _render(self) -> RenderableType:
        self._spinner.update(text=Text(self._doing))
        if not self._rows:
            return self._spinner
        return Group(self.table(ROWS), Text(f"about {_clock(self._left())} of learning left"), self._spinner)


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
