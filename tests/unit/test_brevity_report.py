"""When the demo counts as passed, and what it writes."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from seedbed_agents.brevity.evaluate import Evaluation, Measured
from seedbed_agents.brevity.learning import Learned
from seedbed_agents.brevity.report import (
    Result,
    answers_table,
    conditions,
    conditions_table,
    summary,
    to_json,
    write_json,
)

CONTRACT = [
    "words_before",
    "words_after",
    "empty_after",
    "correct_before",
    "correct_after",
    "truncated_before",
    "truncated_after",
    "updates",
    "adaptation_bytes",
    "replay_digest_equal",
    "seconds",
]


def evaluation(version: int, texts: list[str], truncated: int = 0) -> Evaluation:
    return Evaluation(
        version,
        tuple(Measured(f"Question {i}?", ("right",), text, i < truncated) for i, text in enumerate(texts)),
    )


def result(before: Evaluation, after: Evaluation, replayed: bool | None = True) -> Result:
    learned = Learned(before, after, ({"version": 1},), (), 123, "ab" * 32, 50.0)
    return Result(learned, replayed, 60.0, {"model": "smollm2"})


LONG, SHORT, WRONG = "right " + "word " * 9, "right word word word", "word word word word"
# Ten words become six on the mean; four of five keywords stay; one answer was cut, one still is.
BEFORE = evaluation(0, [LONG] * 5, truncated=1)
AT_THE_BAR = evaluation(9, ["right " + "word " * 5] * 4 + ["word " * 6], truncated=1)


def shown(renderable: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(renderable)
    return console.export_text()


def failed(outcome: Result) -> list[str]:
    return [condition.name for condition in conditions(outcome) if not condition.holds]


def test_a_result_exactly_at_the_bar_passes() -> None:
    outcome = result(BEFORE, AT_THE_BAR)
    assert failed(outcome) == []
    assert outcome.passed


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (
            result(BEFORE, evaluation(9, ["right " + "word " * 6] + ["right " + "word " * 5] * 4)),
            "words per answer",
        ),
        (result(BEFORE, evaluation(9, [SHORT] * 4 + [" \n"])), "empty answers"),
        (result(BEFORE, evaluation(9, [SHORT] * 3 + [WRONG] * 2)), "answers with the keyword"),
        (result(BEFORE, evaluation(9, [SHORT] * 5, truncated=2)), "answers cut by length"),
        (result(BEFORE, AT_THE_BAR, replayed=False), "digest after replay"),
        (result(BEFORE, AT_THE_BAR, replayed=None), "digest after replay"),
    ],
)
def test_each_condition_alone_fails_the_demo_and_is_named(outcome: Result, name: str) -> None:
    assert failed(outcome) == [name]
    assert not outcome.passed
    lines = [line for line in shown(conditions_table(outcome)).splitlines() if "FAILED" in line]
    assert len(lines) == 1
    assert name in lines[0]


def test_the_json_has_every_name_of_the_contract(tmp_path: Path) -> None:
    file = tmp_path / "new" / "demo.json"
    write_json(file, to_json(result(BEFORE, AT_THE_BAR)))
    values = json.loads(file.read_text())
    assert list(values)[: len(CONTRACT)] == CONTRACT
    assert [values[name] for name in CONTRACT] == [10.0, 6.0, 0, 5, 4, 1, 1, 9, 123, True, 60.0]
    assert len(values["answers"]) == 5
    assert [file] == list(file.parent.iterdir())


def test_a_replay_without_an_answer_is_null_and_not_false() -> None:
    assert to_json(result(BEFORE, AT_THE_BAR, replayed=None))["replay_digest_equal"] is None


def test_before_and_after_stand_side_by_side_and_answers_are_not_markup() -> None:
    before = replace(BEFORE, answers=(Measured("Q?", ("right",), "[bold]x[/] [/oops]", truncated=False),))
    text = shown(answers_table(before, evaluation(9, ["right"])))
    line = next(line for line in text.splitlines() if "Q?" in line)
    assert "[bold]x[/] [/oops] *" in line
    assert "right" in line


def test_the_summary_says_how_much_was_learned_and_how_small_it_is() -> None:
    text = " ".join(summary(result(BEFORE, AT_THE_BAR)))
    assert "40 % fewer" in text
    assert "123 bytes" in text


def test_an_evaluation_survives_its_notes() -> None:
    assert Evaluation.from_json(json.loads(json.dumps(AT_THE_BAR.to_json()))) == AT_THE_BAR
