"""The demo's exit codes, with the server and the learning left out."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seedbed_agents.brevity import demo
from seedbed_agents.brevity.evaluate import Evaluation, Measured
from seedbed_agents.brevity.learning import Learned
from seedbed_agents.brevity.options import DemoOptions
from seedbed_agents.brevity.progress import HEADINGS, Row
from seedbed_agents.brevity.rounds import NoProgress
from seedbed_agents.brevity.server import ServerError


def evaluation(version: int, text: str, truncated: bool) -> Evaluation:
    return Evaluation(version, (Measured("Q?", ("right",), text, truncated),))


BEFORE = evaluation(0, "right " + "word " * 9, truncated=False)
GOOD = evaluation(2, "right", truncated=False)


@pytest.fixture
def outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, Path]]:
    """Runs the demo with a given end: an evaluation, a replay, or an error on the way."""

    def run(
        after: Evaluation = GOOD, replayed: bool | None = True, error: BaseException | None = None
    ) -> tuple[int, Path]:
        @contextmanager
        def serving(*_: Any) -> Iterator[Any]:
            if isinstance(error, ServerError):
                raise error
            yield SimpleNamespace(base_url="http://127.0.0.1:1/v1")

        async def learn(*_: Any) -> Learned:
            if error:
                raise error
            return Learned(BEFORE, after, (), (), 1, "00", None)

        monkeypatch.setattr(demo, "serving", serving)
        monkeypatch.setattr(demo, "learn", learn)
        monkeypatch.setattr(demo, "replay", lambda *_: replayed)
        options = DemoOptions(json_path=tmp_path / "out.json", store=tmp_path / "run", updates=2)
        return demo.run_demo(options), tmp_path

    return run


def test_a_demo_whose_conditions_hold_ends_with_0_and_is_finished(
    outcome: Callable[..., tuple[int, Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    code, folder = outcome()
    assert code == 0
    assert json.loads((folder / "out.json").read_text())["passed"] is True
    assert "90 % fewer" in capsys.readouterr().out
    again, _ = outcome()
    assert again == 2, "a chosen directory is not begun twice"
    assert "finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("end", "name"),
    [
        ({"after": evaluation(2, "right " + "word " * 6, truncated=False)}, "words per answer"),
        ({"after": evaluation(2, " ", truncated=False)}, "empty answers"),
        ({"after": evaluation(2, "wrong", truncated=False)}, "answers with the keyword"),
        ({"after": evaluation(2, "right", truncated=True)}, "answers cut by length"),
        ({"replayed": False}, "digest after replay"),
        ({"replayed": None}, "digest after replay"),
    ],
)
def test_a_demo_that_misses_a_condition_ends_with_1_and_names_it(
    outcome: Callable[..., tuple[int, Path]],
    capsys: pytest.CaptureFixture[str],
    end: dict[str, Any],
    name: str,
) -> None:
    code, folder = outcome(**end)
    assert code == 1
    assert json.loads((folder / "out.json").read_text())["passed"] is False
    assert any(name in line and "FAILED" in line for line in capsys.readouterr().out.splitlines())


def test_a_server_that_cannot_do_it_ends_the_demo_with_3_and_its_words(
    outcome: Callable[..., tuple[int, Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    for error in (ServerError("[the] server ended"), NoProgress("nothing [moves]")):
        code, folder = outcome(error=error)
        assert code == 3
        assert str(error) in capsys.readouterr().out
        assert not (folder / "out.json").exists()


def test_an_interrupted_demo_ends_with_130_says_how_to_go_on_and_does(
    outcome: Callable[..., tuple[int, Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    code, folder = outcome(error=KeyboardInterrupt())
    assert code == 130
    assert str(folder / "run") in capsys.readouterr().out
    assert outcome()[0] == 0
    assert json.loads((folder / "out.json").read_text())["seconds"] >= 0


def test_a_terminated_demo_ends_like_an_interrupted_one(
    outcome: Callable[..., tuple[int, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    original = demo.Display.say

    def say(display: Any, text: str) -> None:
        original(display, text)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(demo.Display, "say", say)
    assert outcome()[0] == 130
    assert signal.getsignal(signal.SIGTERM) is before


def test_results_that_could_not_be_written_are_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.run_demo(DemoOptions(json_path=tmp_path, store=tmp_path / "run")) == 2
    assert "--json" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()


def test_what_is_not_known_of_a_version_stays_blank() -> None:
    cells = dict(zip(HEADINGS, Row(3, 5e-3, None, None, None, 41.0, 12.0, None).cells(), strict=True))
    assert cells["words"] == cells["live score"] == cells["live words"] == ""
    assert cells["version"] == "3"
