"""What the brevity agent asks, and what an answer is worth."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed_agents.brevity.evaluate import spread_out
from seedbed_agents.brevity.options import DemoOptions, Recipe, recipe_of
from seedbed_agents.brevity.questions import HELD_OUT, TRAINING
from seedbed_agents.brevity.reward import count_words, has_keyword, reward
from seedbed_agents.brevity.rounds import population_questions

PARIS = ("paris",)
FILLER = st.lists(st.sampled_from(["the", "city", "of", "light", "is", "well"]), min_size=1, max_size=46)


def bare(text: str) -> str:
    return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())


def test_held_out_questions_are_never_training_questions() -> None:
    for part in ("id", "text"):
        training, held_out = ({bare(getattr(q, part)) for q in qs} for qs in (TRAINING, HELD_OUT))
        assert not training & held_out
        assert len(training) == len(TRAINING) == 64
        assert len(held_out) == len(HELD_OUT) == 32


def test_no_population_is_asked_a_held_out_question() -> None:
    held_out = {q.text for q in HELD_OUT}
    recipe = Recipe(model="smollm2", updates=1)
    assert not held_out & {q.text for n in range(200) for q in population_questions(recipe, n)}


def test_keywords_are_lower_case_and_not_given_away_by_the_question() -> None:
    for question in (*TRAINING, *HELD_OUT):
        assert question.keywords
        assert all(word and word == word.lower().strip() for word in question.keywords)
        assert not has_keyword(question.text, question.keywords), question


@pytest.mark.parametrize(
    ("text", "keywords", "found"),
    [
        ("The capital is Paris.", ("paris",), True),
        ("PARIS", ("paris",), True),
        ("Parisian", ("paris",), False),
        ("It has 4 legs.", ("four", "4"), True),
        ("It has 14 legs.", ("four", "4"), False),
        ("Four.", ("four", "4"), True),
        ("in South\n America, mostly", ("south america",), True),
        ("South of America", ("south america",), False),
        ("**Au**", ("au",), True),
        ("H₂O", ("h2o", "h₂o"), True),
        ("twenty-six letters", ("twenty-six",), True),
        ("", ("paris",), False),
    ],
)
def test_a_keyword_counts_as_whole_words_in_any_case(
    text: str, keywords: tuple[str, ...], found: bool
) -> None:
    assert has_keyword(text, keywords) is found


def test_words_are_what_white_space_leaves() -> None:
    assert count_words(" The  answer\nis\t4. ") == 4
    assert count_words(" \n") == 0


@given(words=FILLER, right=st.booleans())
def test_a_reward_lies_between_nothing_and_one(words: list[str], right: bool) -> None:
    assert 0 < reward(" ".join([*words, "Paris" if right else "Rome"]), PARIS) < 1


@given(words=FILLER, right=st.booleans())
def test_each_word_less_earns_more(words: list[str], right: bool) -> None:
    answer = ["Paris" if right else "Rome", *words]
    assert reward(" ".join(answer[:-1]), PARIS) > reward(" ".join(answer), PARIS)


@given(words=FILLER)
def test_the_keyword_earns_more_at_the_same_length(words: list[str]) -> None:
    assert reward(" ".join(["Paris", *words]), PARIS) > reward(" ".join(["Rome", *words]), PARIS)


def test_a_right_answer_in_a_sentence_earns_more_than_one_wrong_word() -> None:
    assert reward("The capital of France is Paris.", PARIS) > reward("Rome", PARIS)


@pytest.mark.parametrize("silence", ["", " ", "\n\n"])
def test_silence_earns_less_than_any_answer(silence: str) -> None:
    assert reward(silence, PARIS) == 0 <= reward("no " * 200, PARIS) < reward("no", PARIS)


def test_populations_ask_every_training_question_equally_often_and_repeatably() -> None:
    recipe = Recipe(model="smollm2", updates=1, questions_per_population=4)
    asked = [population_questions(recipe, n) for n in range(32)]
    assert asked == [population_questions(recipe, n) for n in range(32)]
    assert set(Counter(q.id for qs in asked for q in qs).values()) == {2}
    assert asked[:16] != asked[16:], "each pass has an order of its own"
    assert asked != [population_questions(Recipe("smollm2", 1, seed=99), n) for n in range(32)]


def test_a_look_takes_the_same_spread_of_questions_every_time() -> None:
    assert spread_out(HELD_OUT, 8) == spread_out(HELD_OUT, 8) == HELD_OUT[::4]
    assert spread_out(HELD_OUT, 99) == HELD_OUT


def test_a_quick_demo_makes_fewer_updates_and_a_given_number_wins() -> None:
    whole, quick = recipe_of(DemoOptions()), recipe_of(DemoOptions(quick=True))
    assert 0 < quick.updates < whole.updates
    for is_quick, updates in product((True, False), (1, 3)):
        assert recipe_of(DemoOptions(quick=is_quick, updates=updates)).updates == updates


@pytest.mark.parametrize(("name", "value"), [("updates", 0), ("port", -1), ("port", 65536)])
def test_an_option_out_of_range_is_refused_by_name_and_value(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"{name}: {value} .*; use"):
        DemoOptions(**{name: value})
