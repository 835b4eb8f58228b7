"""What an operator may call a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from seedbed_server.config import load_settings
from seedbed_server.store import StoreError, place_of


def test_a_path_is_a_file_and_what_belongs_to_it_lies_beside_it(tmp_path: Path) -> None:
    for given in (tmp_path / "s.sqlite", str(tmp_path / "s.sqlite")):
        place = place_of(given)
        assert place.is_file
        assert place.beside == tmp_path / "s.sqlite"
        assert place.name == str(tmp_path / "s.sqlite")


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_url_is_a_database_and_its_password_is_not_shown(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEDBED_HOME", str(tmp_path))
    place = place_of(f"{scheme}://agent:word@db.example:5433/live?sslmode=require")
    assert not place.is_file
    assert place.url.drivername == "postgresql+psycopg"
    assert place.url.password == "word"
    assert place.name == "postgresql://agent:***@db.example:5433/live?sslmode=require"
    assert place.beside.parent.parent == tmp_path / "databases"
    again = place_of(f"{scheme}://other:words@db.example:5433/live")
    assert again.beside == place.beside, "another login is the same database"
    assert place_of(f"{scheme}://agent@db.example:5433/other").beside != place.beside


def test_a_folder_may_be_chosen_for_a_database_only(tmp_path: Path) -> None:
    place = place_of("postgresql://a@h/d", tmp_path / "beside")
    assert place.beside == tmp_path / "beside" / "store"
    with pytest.raises(StoreError, match=r"^store_folder: .*Leave store_folder out"):
        place_of(tmp_path / "s.sqlite", tmp_path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("mysql://a@h/d", "mysql:// is no store; use postgresql://"),
        ("postgresql://a@h", "names no database"),
        ("postgresql://a@h/", "names no database"),
        ("postgresql://a@h:port/d", "cannot be read"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_with_a_remedy(given: str, said: str) -> None:
    with pytest.raises(StoreError, match=r"^store: ") as caught:
        place_of(given)
    assert said in str(caught.value)
    assert "postgresql://USER@HOST" in str(caught.value)


def test_settings_that_are_kept_or_shown_have_no_password() -> None:
    settings = load_settings(store="postgresql://agent:word@h/d")
    assert settings.store_name("m") == "postgresql://agent:word@h/d"
    assert "word" not in str(settings.model_dump(mode="json"))
    assert settings.model_dump(mode="json")["store"] == "postgresql://agent:***@h/d"
    assert load_settings(store="/a/b.sqlite").model_dump(mode="json")["store"] == "/a/b.sqlite"
