"""More members than slots: a seed's factors go and come back, and nobody notices."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from tests.engine.client import Ask, Client
from tests.engine.test_rows import _prompts

MEMBERS = 40
TURNS = 3


def test_forty_members_over_sixteen_slots_answer_as_over_sixty_four(
    llama: Client, engines: Callable[..., Client], toy_folder: Callable[..., Path]
) -> None:
    """Episodes of several turns, in random order, so that most come back after their slot was taken."""
    assert llama.description.slots == 16
    wide = engines(toy_folder("llama"), slots=64)
    assert wide.description.slots == 64
    rng = random.Random(7)
    members = [(rng.randrange(2**64), rng.choice((-1, 1)) * rng.uniform(0.01, 0.06)) for _ in range(MEMBERS)]
    histories = [_prompts(512, 1)[0] + (i + 3,) for i in range(MEMBERS)]
    recorded = []
    for _ in range(TURNS):
        order = list(range(MEMBERS))
        rng.shuffle(order)
        asks = [Ask(histories[i], *members[i], tokens=6) for i in order]
        for i, ask, answer in zip(order, asks, llama.ask_all(asks, at_once=24), strict=True):
            recorded.append((ask, answer))
            user = tuple(rng.randrange(3, 512) for _ in range(5))
            histories[i] = ask.prompt + answer.ids + user
    forced = [
        Ask((*ask.prompt, *answer.ids), ask.seed, ask.sigma, tokens=0, prompt_logprobs=True)
        for ask, answer in recorded
    ]
    rng.shuffle(forced)
    by_text = {(f.prompt, f.seed): a for f, a in zip(forced, wide.ask_all(forced, at_once=24), strict=True)}
    worst, near = 0.0, 0
    for ask, answer in recorded:
        full = (*ask.prompt, *answer.ids)
        scored = by_text[full, ask.seed].prompt_logprobs[len(ask.prompt) :]
        assert len(scored) == 6
        worst = max(
            worst, *(abs(x - y) for x, y in zip(answer.logprobs, scored, strict=True) if y is not None)
        )
        near += 1
    print(f"largest difference over {near} answers of {MEMBERS} members: {worst}")
    assert worst <= 1e-4


def test_a_hint_makes_seeds_resident_and_changes_no_answer(llama: Client) -> None:
    from seedbed.v1 import engine_pb2

    ask = Ask(_prompts(512, 2)[1], 321, 0.05, tokens=6)
    before = llama.ask(ask)
    reply = llama.stub.PrepareMembers(engine_pb2.PrepareMembersRequest(seeds=range(100)), timeout=60)
    assert reply.resident == 16
    after = llama.ask(ask)
    assert after.ids == before.ids
    assert max(abs(x - y) for x, y in zip(after.logprobs, before.logprobs, strict=True)) <= 1e-4
