"""Where a demo keeps its store, and when an interrupted one goes on."""

from dataclasses import replace
from pathlib import Path

import pytest

from seedbed_agents.brevity.evaluate import Evaluation, Measured
from seedbed_agents.brevity.options import Recipe
from seedbed_agents.brevity.run_directory import DirectoryError, demo_home, open_run

RECIPE = Recipe(model="smollm2", updates=4)
BEFORE = Evaluation(0, (Measured("Q?", ("a", "b"), "An answer.", truncated=True),))


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBED_HOME", str(tmp_path / "home"))


def test_an_interrupted_demo_goes_on_in_its_directory_with_its_notes() -> None:
    with open_run(RECIPE) as first:
        assert not first.resumed
        first.note(before=BEFORE, seconds=12.5, looks=({"version": 4},))
    with open_run(RECIPE) as second:
        assert second.resumed
        assert second.path == first.path
        assert second.path.parent == demo_home()
        assert second.notes == first.notes
        assert second.notes.before == BEFORE


def test_a_finished_demo_is_followed_by_a_new_one() -> None:
    with open_run(RECIPE) as first:
        first.note(finished=True)
    with open_run(RECIPE) as second:
        assert not second.resumed
        assert second.path != first.path


def test_another_recipe_gets_another_directory_and_leaves_the_first_one_to_go_on() -> None:
    with open_run(RECIPE) as first:
        pass
    with open_run(replace(RECIPE, updates=5)) as other:
        assert other.path != first.path
    with open_run(RECIPE) as again:
        assert again.resumed
        assert again.path == first.path


def test_two_demos_at_once_do_not_share_a_directory(tmp_path: Path) -> None:
    with open_run(RECIPE) as first, open_run(RECIPE) as second:
        assert first.path != second.path
    chosen = tmp_path / "chosen"
    with (
        open_run(RECIPE, chosen),
        pytest.raises(DirectoryError, match="another demo"),
        open_run(RECIPE, chosen),
    ):
        pass


def test_a_chosen_directory_goes_on_with_the_same_recipe_only(tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    with open_run(RECIPE, chosen) as first:
        assert first.store == chosen / "store.sqlite"
    with open_run(RECIPE, chosen) as second:
        assert second.resumed
    other = replace(RECIPE, updates=5)
    with pytest.raises(DirectoryError, match="updates = 4, and 5 was asked"), open_run(other, chosen):
        pass


def test_a_chosen_directory_that_is_finished_or_strange_is_refused(tmp_path: Path) -> None:
    with open_run(RECIPE, tmp_path / "done") as run:
        run.note(finished=True)
    with pytest.raises(DirectoryError, match="finished"), open_run(RECIPE, tmp_path / "done"):
        pass
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(DirectoryError, match=r"thesis\.txt"), open_run(RECIPE, tmp_path / "mine"):
        pass
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


def test_damaged_notes_and_unwritable_places_say_what_to_do(tmp_path: Path) -> None:
    with open_run(RECIPE, tmp_path / "run"):
        pass
    (tmp_path / "run" / "demo.json").write_text("{")
    with pytest.raises(DirectoryError, match=r"damaged.*move"), open_run(RECIPE, tmp_path / "run"):
        pass
    with open_run(RECIPE) as first:
        (first.path / "demo.json").write_text('{"recipe": {}}')
    with open_run(RECIPE) as second:
        assert second.path != first.path, "a damaged one does not stand in the way"
    (tmp_path / "file").write_text("")
    with pytest.raises(DirectoryError, match="--store"), open_run(RECIPE, tmp_path / "file" / "run"):
        pass
