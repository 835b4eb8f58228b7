"""A request's seed decides its tokens, alone and in any company; without one SGLang draws as ever."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch

from seedbed_server.engine.sampling import choose, seeded_rows
from tests.engine.client import Ask, Client

MEMBERS = [(0, 0.0), (11, 0.05), (11, -0.05), (12, 0.05)]


def _asks(vocabulary: int = 512) -> list[Ask]:
    """Four members, three prompts and two ways to sample, each with a seed of its own."""
    rng = random.Random(3)
    prompts = [tuple(rng.randrange(3, vocabulary) for _ in range(8 + 11 * i)) for i in range(3)]
    return [
        Ask(prompt, seed, sigma, tokens=24, temperature=1.0, top_p=top_p, sampling_seed=1000 + 7 * number)
        for number, (prompt, (seed, sigma), top_p) in enumerate(
            (prompt, member, top_p) for prompt in prompts for member in MEMBERS for top_p in (1.0, 0.9)
        )
    ]


@pytest.mark.engine
def test_a_seed_gives_the_same_tokens_alone_and_among_others(llama: Client) -> None:
    asks = _asks()
    crowd = [Ask(a.prompt, tokens=16, temperature=1.0) for a in asks[:8]]
    together = llama.ask_all([*asks, *crowd])[: len(asks)]
    shuffled = list(range(len(asks)))
    random.Random(4).shuffle(shuffled)
    again = dict(zip(shuffled, llama.ask_all([asks[i] for i in shuffled], at_once=5), strict=True))
    alone = [llama.ask(ask) for ask in asks[::4]]
    assert [again[i].ids for i in range(len(asks))] == [answer.ids for answer in together]
    assert [answer.ids for answer in alone] == [answer.ids for answer in together[::4]]


@pytest.mark.engine
def test_other_seeds_and_no_seed_give_other_tokens(llama: Client) -> None:
    prompt = _asks()[0].prompt
    seeded = [Ask(prompt, tokens=16, temperature=1.0, sampling_seed=seed) for seed in range(8)]
    free = [Ask(prompt, tokens=16, temperature=1.0)] * 8
    answers = [answer.ids for answer in llama.ask_all([*seeded, *free])]
    assert len(set(answers)) == 16
    greedy = [Ask(prompt, tokens=16, sampling_seed=seed) for seed in (1, 2)]
    assert len({answer.ids for answer in llama.ask_all(greedy)}) == 1


def test_limits_mean_what_they_mean_in_sglang() -> None:
    from sglang.srt.layers.sampler import top_k_top_p_min_p_sampling_from_probs_torch

    p = torch.softmax(torch.randn(24, 12, generator=torch.Generator().manual_seed(1)), -1)
    rows = [
        SimpleNamespace(sampling_seed=0, top_k=top_k, top_p=top_p, min_p=min_p)
        for top_k in (2, 5, 1 << 30)
        for top_p in (0.5, 0.8, 0.999, 1.0)
        for min_p in (0.0, 0.3)
    ]
    information = SimpleNamespace(
        top_ks=torch.tensor([r.top_k for r in rows], dtype=torch.int32),
        top_ps=torch.tensor([r.top_p for r in rows]),
        min_ps=torch.tensor([r.min_p for r in rows]),
    )
    _, weights, ids, _ = top_k_top_p_min_p_sampling_from_probs_torch(
        p.clone(), information.top_ks, information.top_ps, information.min_ps, True, None, None,
        return_filtered_probs=True,
    )  # fmt: skip
    seeded = seeded_rows(rows, "cpu")
    assert seeded is not None
    found = [choose(p, torch.full((24,), position), seeded, information) for position in range(4000)]
    for row in range(24):
        kept = {int(token) for token, weight in zip(ids[row], weights[row], strict=True) if weight > 0}
        assert {int(tokens[row]) for tokens in found} == kept, vars(rows[row])
