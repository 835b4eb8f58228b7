"""The contracts: they keep the rules, their stubs are current, and the lint finds what breaks a rule."""

from pathlib import Path

import pytest

from tools.proto import lint, stale

GOOD = """
syntax = "proto3";
package toy.v1;
// Says things.
service TalkService {
  // Says one.
  rpc Say(SayRequest) returns (stream SayResponse);
}
message SayRequest { optional string text = 1; map<string, string> labels = 2; }
message SayResponse { oneof part { string text = 1; Mood mood = 2; } }
// How.
enum Mood {
  MOOD_UNSPECIFIED = 0;
  MOOD_GOOD = 1;
}
"""


def findings(folder: Path, text: str, name: str = "toy/v1/talk.proto") -> list[str]:
    file = folder / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return lint(folder)


def test_contracts_of_the_product_keep_the_rules() -> None:
    assert lint() == []


def test_generated_stubs_are_current() -> None:
    assert stale() == []


def test_good_contract_passes(tmp_path: Path) -> None:
    assert findings(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("package toy.v1;", "package toy;", "must be lower case and end with a version"),
        ("package toy.v1;", "package other.v1;", "must lie in the folder other/v1"),
        ("TalkService", "Talker", "service Talker must be PascalCase and end with Service"),
        ("// Says things.\n", "", "service TalkService has no comment"),
        ("  // Says one.\n", "", "rpc TalkService.Say has no comment"),
        ("rpc Say(", "rpc say(", "rpc TalkService.say must be PascalCase"),
        ("Say(SayRequest)", "Say(SayResponse)", "rpc TalkService.Say must use SayRequest, not SayResponse"),
        (
            "rpc Say(SayRequest)",
            "rpc Tell(SayRequest) returns (SayResponse);\n  // Again.\n  rpc Say(SayRequest)",
            "rpc TalkService.Say shares SayRequest with TalkService.Tell",
        ),
        ("MOOD_GOOD", "GOOD", "enum value GOOD must be UPPER_SNAKE_CASE and start with MOOD_"),
        ("MOOD_UNSPECIFIED", "MOOD_NONE", "enum value MOOD_NONE is 0, which must be MOOD_UNSPECIFIED"),
        ("// How.\n", "", "enum Mood has no comment"),
        (
            "string text = 1; map",
            "string theText = 1; map",
            "field SayRequest.theText must be lower_snake_case",
        ),
        ("oneof part", "oneof Part", "oneof SayResponse.Part must be lower_snake_case"),
        ("message SayResponse", "message other {}\nmessage SayResponse", "message other must be PascalCase"),
    ],
)
def test_bad_contract_is_caught(tmp_path: Path, good: str, bad: str, message: str) -> None:
    assert good in GOOD
    assert any(message in finding for finding in findings(tmp_path, GOOD.replace(good, bad)))


def test_file_name_must_be_snake_case(tmp_path: Path) -> None:
    assert any("lower_snake_case" in finding for finding in findings(tmp_path, GOOD, "toy/v1/Talk.proto"))


def test_contract_that_does_not_compile_stops_with_protocs_words(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"talk\.proto"):
        findings(tmp_path, GOOD.replace("string text = 1; map", "strin text = 1; map"))
