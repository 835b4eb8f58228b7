"""Which text a prompt goes on with: whole prompts with their answers, per API key, for a while."""

from __future__ import annotations

import random

import pytest

from seedbed_server.gateway import texts
from seedbed_server.gateway.texts import Texts, digests_of

BEGIN = "User: how many legs has a spider?\nAgent:"


def test_a_prompt_with_its_answer_goes_on_in_the_same_episode() -> None:
    kept = Texts()
    kept.note(b"me", "ep_1", digests_of(BEGIN, [" Eight. \n"]), 0.0)
    for written in (" Eight. \n", " Eight.", "Eight."):
        assert kept.find(b"me", BEGIN + written + "\nUser: and an ant?", 1.0) == "ep_1", written
    assert kept.find(b"me", BEGIN + " Six.\nUser: and an ant?", 1.0) is None, "another answer"
    assert kept.find(b"me", BEGIN + " Eight.", 1.0) is None, "nothing was added"
    assert kept.find(b"me", BEGIN, 1.0) is None, "the same prompt again is a fresh sample"
    assert kept.find(b"you", BEGIN + " Eight.\nUser: and an ant?", 1.0) is None, "another key"
    assert kept.find(b"me", BEGIN + " Eight.\nUser: and an ant?", 601.0) is None, "long ago"


def test_the_longest_text_wins_and_every_choice_counts() -> None:
    kept = Texts()
    kept.note(b"me", "ep_1", digests_of(BEGIN, [" Eight.", " Ten."]), 0.0)
    longer = BEGIN + " Eight.\nUser: sure?\nAgent:"
    kept.note(b"me", "ep_2", digests_of(longer, [" Yes."]), 0.0)
    assert kept.find(b"me", longer + " Yes.\nUser: thanks", 1.0) == "ep_2"
    assert kept.find(b"me", longer + " No.\nUser: oh", 1.0) == "ep_1"
    assert kept.find(b"me", BEGIN + " Ten.\nUser: oh", 1.0) == "ep_1"


def test_of_several_that_said_the_same_each_goes_on_once() -> None:
    kept = Texts()
    for episode in ("ep_1", "ep_2", "ep_3"):
        kept.note(b"me", episode, digests_of(BEGIN, [" Eight."]), 0.0)
    found = [kept.find(b"me", BEGIN + " Eight. More?", 1.0) for _ in range(4)]
    assert found == ["ep_1", "ep_2", "ep_3", "ep_1"]


def test_short_texts_and_empty_answers_begin_nothing() -> None:
    assert digests_of("a", ["b"]) == []
    assert digests_of(BEGIN, [""]) == []


def test_texts_are_told_apart_by_bytes() -> None:
    kept = Texts()
    kept.note(b"me", "ep_1", digests_of(BEGIN, [" 🦄 Eight \ud83e"]), 0.0)
    assert kept.find(b"me", BEGIN + " 🦄 Eight \ud83e more", 1.0) == "ep_1"


def test_memory_is_bounded_and_forgotten_texts_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MAX_KEPT", 20)
    kept, rng = Texts(), random.Random(1)
    for number in range(200):
        text = BEGIN + " " * rng.randrange(5)
        kept.note(bytes([number % 3]), f"ep_{number}", digests_of(text, [f"answer {number}"]), float(number))
    assert len(kept) == 20
    kept.note(b"last", "ep", digests_of(BEGIN, ["Eight."]), 10_000.0)
    assert len(kept) == 1
    assert list(kept._lengths) == [b"last"]
