"""Settings of the server: where they come from, and how a wrong one is answered."""

from pathlib import Path
from typing import Any

import pytest

from seedbed_server.config import SettingsError, default_store, load_settings, unknown_variables


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("SEEDBED_"):
            monkeypatch.delenv(name)


def test_defaults_are_usable() -> None:
    settings = load_settings()
    assert (settings.model, settings.host, settings.port) == ("smollm2", "127.0.0.1", 8600)
    assert settings.population_size == 16
    assert settings.sampling == "one-sided"


def test_environment_is_read_and_flags_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBED_POPULATION_SIZE", "8")
    monkeypatch.setenv("SEEDBED_SIGMA", "0.01")
    settings = load_settings(population_size="32", sigma=None)
    assert settings.population_size == 32
    assert settings.sigma == 0.01


def test_patterns_are_split_at_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBED_EXCLUDE", "*.bias, lm_head.*,")
    assert load_settings().exclude == ("*.bias", "lm_head.*")


def test_seeds_reach_the_last_one() -> None:
    assert load_settings(run_seed=2**64 - 1).run_seed == 2**64 - 1


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ({"sigma": 0}, ["sigma: 0", "greater than 0", "--sigma", "SEEDBED_SIGMA"]),
        ({"sigma": "nan"}, ["sigma: 'nan'", "finite"]),
        ({"sigma": "much"}, ["sigma: 'much'", "valid number"]),
        ({"alpha": "inf"}, ["alpha: 'inf'", "finite"]),
        ({"alpha": -1}, ["alpha: -1", "--alpha"]),
        ({"population_size": 1}, ["population_size: 1", "2", "--population-size"]),
        ({"episodes_per_member": 0}, ["episodes_per_member: 0"]),
        ({"run_seed": 2**64}, ["run_seed: 18446744073709551616", "less than"]),
        ({"run_seed": -1}, ["run_seed: -1"]),
        ({"port": 70000}, ["port: 70000", "65535"]),
        ({"device": "tpu"}, ["device: 'tpu'", "'cpu'"]),
        ({"model": ""}, ["model: ''"]),
        ({"host": "0.0.0.0"}, ["host: '0.0.0.0'", "127.0.0.1", "allow_remote"]),
        ({"host": "example.org"}, ["host: 'example.org'", "allow_remote"]),
        ({"sampling": "mirrored", "population_size": 5}, ["population_size: 5", "pairs", "Use 6"]),
        ({"sigma_floor": 0.1}, ["sigma_floor: 0.1", "at most 0.005"]),
        ({"warmup_updates": 100}, ["warmup_updates: 100", "total_updates"]),
        ({"slots": 4, "max_running_requests": 8}, ["max_running_requests: 8", "at most 4"]),
        ({"population": 8}, ["population: there is no such setting"]),
    ],
)
def test_wrong_setting_names_field_value_and_remedy(flags: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(**flags)
    for part in parts:
        assert part in str(caught.value)


def test_every_wrong_setting_gets_its_line() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(sigma=0, port=-1)
    assert len(str(caught.value).splitlines()) == 2


def test_a_floor_above_a_constant_does_not_matter() -> None:
    assert load_settings(sigma=1e-4, sigma_schedule="constant").sigma == 1e-4


def test_remote_addresses_need_a_word() -> None:
    assert load_settings(host="0.0.0.0", allow_remote=True).host == "0.0.0.0"
    assert load_settings(host="::1").host == "::1"


def test_misspelt_variables_are_reported() -> None:
    found = unknown_variables(
        {"SEEDBED_POPULATON_SIZE": "3", "SEEDBED_CACHE": "/c", "SEEDBED_PORT": "1", "HOME": "/"}
    )
    assert found == ["SEEDBED_POPULATON_SIZE is not read by anything; did you mean SEEDBED_POPULATION_SIZE?"]


def test_store_lies_in_the_home_of_its_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SEEDBED_HOME", str(tmp_path))
    assert default_store("org/name") == tmp_path / "org--name" / "store.sqlite"
    assert load_settings().store_name("m") == str(tmp_path / "m" / "store.sqlite")
    assert load_settings(store="/elsewhere/s.sqlite").store_name("m") == "/elsewhere/s.sqlite"
