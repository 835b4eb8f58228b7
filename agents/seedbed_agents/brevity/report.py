"""What must hold at the end of a demo, and how the result is shown and written."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from seedbed_agents.brevity.evaluate import Evaluation
    from seedbed_agents.brevity.learning import Learned

__all__ = [
    "Condition",
    "Result",
    "answers_table",
    "conditions",
    "conditions_table",
    "summary",
    "to_json",
    "write_json",
]

# The bar: mean words at most this share of before, keywords at least that share.
WORDS_SHARE = 0.6
CORRECT_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that a demo found out."""

    learned: Learned
    # Whether a fresh engine that replayed the journal had the digest on record; None: the replay did not end.
    replay_digest_equal: bool | None
    # Spent by all runs of this demo, from the start of the server to the end of the replay.
    seconds: float
    recipe: dict[str, Any]

    @property
    def passed(self) -> bool:
        """Whether every condition holds."""
        return all(condition.holds for condition in conditions(self))


@dataclass(frozen=True, slots=True)
class Condition:
    """One line of the bar."""

    name: str
    demanded: str
    measured: str
    holds: bool


def conditions(result: Result) -> tuple[Condition, ...]:
    """The bar, for the unperturbed live model on held-out questions."""
    before, after = result.learned.before, result.learned.after
    words = WORDS_SHARE * before.words
    correct = CORRECT_SHARE * before.correct
    replayed = {True: "equal", False: "different", None: "no answer"}[result.replay_digest_equal]
    return (
        Condition("words per answer", f"at most {words:.1f}", f"{after.words:.1f}", after.words <= words),
        Condition("empty answers", "0", str(after.empty), after.empty == 0),
        Condition(
            "answers with the keyword",
            f"at least {correct:.1f}",
            str(after.correct),
            after.correct >= correct,
        ),
        Condition(
            "answers cut by length",
            f"at most {before.truncated}",
            str(after.truncated),
            after.truncated <= before.truncated,
        ),
        Condition("digest after replay", "equal", replayed, result.replay_digest_equal is True),
    )


def conditions_table(result: Result) -> Table:
    """The bar, and which of its conditions failed."""
    table = Table(title="Unperturbed live model, held-out questions")
    for heading in ("condition", "demanded", "measured", ""):
        table.add_column(heading)
    for condition in conditions(result):
        mark = Text("holds", "green") if condition.holds else Text("FAILED", "bold red")
        table.add_row(condition.name, condition.demanded, condition.measured, mark)
    return table


def answers_table(before: Evaluation, after: Evaluation, width: int = 100) -> Table:
    """Every held-out question with both answers; `*` marks an answer without its keyword."""
    table = Table(
        title=f"Before (version {before.version}) and after (version {after.version}); * lacks the keyword",
        show_lines=False,
    )
    table.add_column("question")
    for name in ("before", "after"):
        table.add_column("words", justify="right")
        table.add_column(name)
    for first, last in zip(before.answers, after.answers, strict=True):
        cells: list[Text] = [Text(first.question)]
        for answer in (first, last):
            cells += [
                Text(str(answer.words)),
                Text(shortened(answer.text, width) + ("" if answer.correct else " *")),
            ]
        table.add_row(*cells)
    return table


def shortened(text: str, width: int) -> str:
    """One line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def to_json(result: Result) -> dict[str, Any]:
    """The result as JSON values; the first eleven names are a contract."""
    before, after = result.learned.before, result.learned.after
    return {
        "words_before": before.words,
        "words_after": after.words,
        "empty_after": after.empty,
        "correct_before": before.correct,
        "correct_after": after.correct,
        "truncated_before": before.truncated,
        "truncated_after": after.truncated,
        "updates": after.version,
        "adaptation_bytes": result.learned.adaptation_bytes,
        "replay_digest_equal": result.replay_digest_equal,
        "seconds": round(result.seconds, 1),
        "passed": result.passed,
        "conditions": [asdict(condition) for condition in conditions(result)],
        "questions": len(after.answers),
        "score_before": before.score,
        "score_after": after.score,
        "tokens_per_second": result.learned.tokens_per_second,
        "digest": result.learned.digest,
        "recipe": result.recipe,
        "rewards": list(result.learned.updates),
        "looks": list(result.learned.looks),
        "answers": [
            {
                "question": first.question,
                "keywords": list(first.keywords),
                "before": first.text,
                "after": last.text,
                "words": [first.words, last.words],
                "correct": [first.correct, last.correct],
                "truncated": [first.truncated, last.truncated],
            }
            for first, last in zip(before.answers, after.answers, strict=True)
        ],
    }


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write a file, all of it or nothing. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def summary(result: Result) -> Sequence[str]:
    """A few sentences for people."""
    before, after = result.learned.before, result.learned.after
    fell = 100 * (1 - after.words / before.words) if before.words else 0.0
    return (
        f"Words per answer: {before.words:.1f} before, {after.words:.1f} after {after.version} updates "
        f"({fell:.0f} % fewer). Of {len(after.answers)} answers, {before.correct} had the keyword before, "
        f"{after.correct} after.",
        f"The adaptation has {result.learned.adaptation_bytes:,} bytes: seeds and coefficients; with them "
        "the base becomes this model again.",
        f"All of it took {result.seconds / 60:.1f} minutes.",
    )
