"""Tokens that a request's seed decides: by their probabilities and limits, whoever is beside them."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from seedbed_server.engine.sampling import choices_apart, choose, seed_of_choice, seeded_rows

ALL = 1 << 30


@dataclass(frozen=True)
class Parameters:
    sampling_seed: int | None = None
    top_k: int = ALL
    top_p: float = 1.0
    min_p: float = 0.0


def drawn(p: Tensor, parameters: list[Parameters], positions: list[int]) -> list[int]:
    seeded = seeded_rows(parameters, "cpu")
    assert seeded is not None
    information = SimpleNamespace(
        top_ks=torch.tensor([q.top_k for q in parameters], dtype=torch.int32),
        top_ps=torch.tensor([q.top_p for q in parameters]),
        min_ps=torch.tensor([q.min_p for q in parameters]),
    )
    return choose(p, torch.tensor(positions), seeded, information).tolist()


def some(rows: int, tokens: int = 300) -> Tensor:
    return torch.softmax(3 * torch.randn(rows, tokens, generator=torch.Generator().manual_seed(5)), -1)


def test_each_token_comes_as_often_as_its_probability_says() -> None:
    p, times = torch.tensor([0.5, 0.25, 0.15, 0.08, 0.02, 0.0]), 20_000
    by_seed = drawn(p.expand(times, -1), [Parameters(seed) for seed in range(times)], [7] * times)
    by_position = drawn(p.expand(times, -1), [Parameters(42)] * times, list(range(times)))
    for tokens in (by_seed, by_position):
        counts = torch.bincount(torch.tensor(tokens), minlength=6).double()
        assert counts[5] == 0
        expected = p[:5].double() * times
        # The 99.99 % point of chi squared with four degrees of freedom.
        assert float(((counts[:5] - expected) ** 2 / expected).sum()) < 23.5


def test_neighbours_in_seed_and_position_are_independent() -> None:
    times = 20_000
    p = torch.full((times, 2), 0.5)
    seeds = [Parameters(seed) for seed in range(times)]
    one, next_position = drawn(p, seeds, [3] * times), drawn(p, seeds, [4] * times)
    next_seed = [*one[1:], one[0]]
    for other in (next_position, next_seed):
        same = sum(a == b for a, b in zip(one, other, strict=True))
        assert abs(same - times / 2) < 4 * (times / 4) ** 0.5


def test_a_row_is_drawn_alike_alone_and_among_others() -> None:
    p = some(6)
    rows = [
        Parameters(1),
        Parameters(),
        Parameters(3, top_p=0.8),
        Parameters(4, top_k=20),
        Parameters(-5, min_p=0.1),
        Parameters(2**63 - 1),
    ]
    together = drawn(p, rows, [10, 20, 30, 40, 50, 60])
    alone = [drawn(p[i : i + 1], [rows[i]], [10 * (i + 1)])[0] for i in (0, 2, 3, 4, 5)]
    assert together == alone
    # Another batch computes the same logits with other roundings.
    noise = 1 + 1e-6 * torch.randn(p.shape, generator=torch.Generator().manual_seed(6))
    assert drawn(p * noise, rows, [10, 20, 30, 40, 50, 60]) == together


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        ({"top_k": 2}, {3, 1}),
        ({"top_p": 0.6}, {3, 1}),
        ({"top_p": 0.4}, {3}),
        ({"min_p": 0.5}, {3, 1}),
        ({"top_k": 3, "top_p": 0.95, "min_p": 0.45}, {3, 1}),
        ({"top_p": 1.0}, {0, 1, 2, 3}),
    ],
)
def test_limits_leave_tokens_out(limits: dict[str, Any], kept: set[int]) -> None:
    p = torch.tensor([0.15, 0.25, 0.1, 0.5])
    found = drawn(p.expand(400, -1), [Parameters(seed, **limits) for seed in range(400)], [1] * 400)
    assert set(found) == kept


def test_rows_without_a_seed_and_greedy_ones_are_left_alone() -> None:
    assert seeded_rows([Parameters(), Parameters(7, top_k=1)], "cpu") is None
    found = seeded_rows([Parameters(), Parameters(7), Parameters(8, top_p=0.5)], "cpu")
    assert found is not None
    assert (found.rows.tolist(), found.seeds.tolist()) == ([1, 2], [7, 8])
    assert found.limited is not None
    assert found.limited.tolist() == [1]


def test_choices_have_seeds_of_their_own_and_the_first_one_that_of_the_request() -> None:
    seeds = [seed_of_choice(7, i) for i in range(128)]
    assert seeds[0] == 7
    assert len(set(seeds)) == 128
    assert all(-(2**63) <= seed < 2**63 for seed in seeds)
    assert seeds == [seed_of_choice(7, i) for i in range(128)]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ({"text": "a"}, {"text": ["a", "a"]}),
        ({"text": ["a", "b"]}, {"text": ["a", "a", "b", "b"]}),
        ({"input_ids": [1, 2]}, {"input_ids": [[1, 2], [1, 2]]}),
        ({"input_ids": [[1], [2]]}, {"input_ids": [[1], [1], [2], [2]]}),
    ],
)
def test_prompts_are_written_once_for_each_choice(prompt: dict[str, Any], expected: dict[str, Any]) -> None:
    parameters = {"n": 2, "sampling_seed": 7, "temperature": 1.0}
    request = SimpleNamespace(**{"text": None, "input_ids": None, **prompt}, sampling_params=parameters)
    apart = choices_apart(request)
    for name, value in expected.items():
        assert getattr(apart, name) == value
    prompts = len(next(iter(expected.values()))) // 2
    assert [q["sampling_seed"] for q in apart.sampling_params] == [7, seed_of_choice(7, 1)] * prompts
    assert {q["n"] for q in apart.sampling_params} == {1}


@pytest.mark.parametrize("parameters", [{"n": 3, "sampling_seed": None}, {"n": 1, "sampling_seed": 7}])
def test_other_requests_stay_as_they_are(parameters: dict[str, Any]) -> None:
    request = SimpleNamespace(text="a", input_ids=None, sampling_params=parameters)
    assert choices_apart(request) is request
