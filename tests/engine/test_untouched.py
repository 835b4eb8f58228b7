"""Perturbing never writes the weights."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from tests.engine.client import Ask, Client


def test_a_thousand_perturbed_requests_leave_every_bit_as_it_was(
    engines: Callable[..., Client], toy_folder: Callable[..., Path], tmp_path: Path
) -> None:
    llama = engines(toy_folder("llama"), chunked_prefill_size=64)
    rng = random.Random(3)
    question = Ask(tuple(rng.randrange(3, 512) for _ in range(30)), tokens=12, prompt_logprobs=True)

    before = llama.ask(question)
    assert before.cached == 0
    digest = llama.state.digest
    assert llama.measured_digest() == digest
    llama.snapshot(str(tmp_path / "before"))

    def perturbed(i: int) -> Ask:
        prompt = tuple(rng.randrange(3, 512) for _ in range(20))
        sigma = rng.choice((-1, 1)) * rng.uniform(0.001, 0.1)
        return Ask(prompt, rng.randrange(2**64), sigma, tokens=4, logprobs=False)

    answers = llama.ask_all([perturbed(i) for i in range(1000)], at_once=32)
    assert len(answers) == 1000
    assert all(len(a.ids) == 4 for a in answers)

    assert llama.state.digest == digest
    assert llama.measured_digest() == digest
    llama.snapshot(str(tmp_path / "after"))
    weights = [(tmp_path / which / "model.safetensors").read_bytes() for which in ("before", "after")]
    assert weights[0] == weights[1]

    # A thousand others have pushed the question out of the cache, so that this is a cold run again.
    after = llama.ask(question)
    assert after.cached == 0
    assert after == before

    crowd = [perturbed(i) for i in range(11)]
    among = llama.ask_all([question, *crowd])[0]
    pairs = zip(
        (*among.prompt_logprobs[1:], *among.logprobs),
        (*before.prompt_logprobs[1:], *before.logprobs),
        strict=True,
    )
    assert max(abs(x - y) for x, y in pairs if x is not None and y is not None) <= 1e-4
