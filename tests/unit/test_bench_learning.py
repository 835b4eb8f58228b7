"""What the learning benchmark computes from answers: scores, rewards, intervals."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from bench.learning import lists
from bench.learning.arms import ARMS, posted
from bench.learning.bootstrap import interval
from bench.learning.tasks import TASKS


@pytest.mark.parametrize(
    ("text", "count", "score"),
    [
        ("1. Oak\n2. Ash\n3. Elm", 3, 1.0),
        ("- Oak\n- Ash\n- Elm\n", 3, 1.0),
        ("Oak\nAsh", 3, (2 / 3 + 1) / 2),
        ("Oak\nAsh\nElm\nYew", 3, (2 / 3 + 1) / 2),
        ("1. **Oak**\n2. Oak.\n3. oak", 3, 1 / 3),
        ("1. Oak\n2. Ash\n3. Oak\n4. Oak", 4, 1 / 2),
        ("Here are three trees:\n1. Oak\n2. Ash\n3. Elm", 3, (1 + 3 / 4) / 2),
        ("Of course, I would love to list some trees for you.", 2, 0.0),
        ("", 2, 0.0),
        ("\n  \n", 5, 0.0),
    ],
)
def test_a_list_earns_what_its_lines_say(text: str, count: int, score: float) -> None:
    assert lists.score(text, count) == pytest.approx(score)


@pytest.mark.parametrize("name", TASKS)
def test_no_held_out_prompt_is_ever_rewarded(name: str) -> None:
    task = TASKS[name]
    ids = [item.id for item in (*task.training, *task.held_out)]
    texts = [item.text for item in (*task.training, *task.held_out)]
    assert len(set(ids)) == len(ids)
    assert len(set(texts)) == len(texts)
    assert len(task.held_out) == 32
    assert all(0 <= item.score("Paris, of course.") <= 1 for item in task.held_out)


def test_the_kinds_of_held_out_lists_are_in_no_rewarded_one() -> None:
    assert not {w.kind for w in lists.TRAINING} & {w.kind for w in lists.HELD_OUT}


def test_true_rewards_are_the_scores_and_random_ones_do_not_know_them() -> None:
    keys = [f"{i}" for i in range(4000)]
    assert all(posted("ours", 0.3, key) == 0.3 for key in keys)
    noise = [posted("noise", 1.0, key) for key in keys]
    assert noise == [posted("noise", 0.0, key) for key in keys]
    assert abs(statistics.mean(noise)) < 4 / 4000**0.5


def test_a_quarter_of_the_poisoned_rewards_is_the_opposite_and_a_tenth_is_chance() -> None:
    rewards = [posted("poisoned", 0.9, f"{i}") for i in range(8000)]
    true, opposite = (sum(abs(r - value) < 1e-12 for r in rewards) / 8000 for value in (0.9, 0.1))
    assert true == pytest.approx(0.9 * 0.75, abs=0.02)
    assert opposite == pytest.approx(0.9 * 0.25, abs=0.02)
    assert set(ARMS) == {"ours", "noise", "poisoned"}


def test_the_interval_of_a_certain_difference_is_the_difference() -> None:
    found = interval(np.full((3, 32), 0.25))
    assert (found.mean, found.low, found.high) == (0.25, 0.25, 0.25)


def test_the_interval_is_wider_where_seeds_disagree() -> None:
    """Prompts alone would say that the mean is certain."""
    rng = np.random.default_rng(1)
    prompts = rng.normal(0, 0.1, (1, 400))
    agree = interval(np.repeat(prompts, 3, 0) + 0.5)
    seeds = np.array([[-0.5], [0.0], [0.5]])
    disagree = interval(np.repeat(prompts, 3, 0) + 0.5 + seeds)
    assert disagree.mean == pytest.approx(agree.mean)
    assert agree.high - agree.low < 0.05
    assert disagree.high - disagree.low > 0.4


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    hits = 0
    for trial in range(200):
        values = rng.normal(0, 0.2, (12, 1)) + rng.normal(0, 0.5, (12, 30))
        found = interval(values, resamples=400, seed=trial)
        hits += found.low <= 0 <= found.high
    assert 0.85 <= hits / 200 <= 1


def test_differences_without_seeds_or_prompts_are_refused() -> None:
    for shape in ((0, 3), (3, 0), (3,)):
        with pytest.raises(ValueError, match="differences: shape"):
            interval(np.zeros(shape))
