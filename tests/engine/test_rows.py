"""Every row of a batch has its own perturbation: against transformers with materialised weights."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from seedbed.v1 import engine_pb2
from tests.engine.client import Ask, Client, record_of
from tests.reference.client import Job, reference_logprobs

# Distinct seeds, both signs, several sigmas; a mirrored pair, and one seed at two sigmas.
MEMBERS = [
    (1, 1.0), (1, -1.0), (2, 0.8), (3, -1.2), (2**64 - 1, 1.0), (2**63, -0.9),
    (77, 1.1), (77, 0.7), (12345678901234567890, 1.0), (9, -1.0),
]  # fmt: skip


def _prompts(vocabulary: int, count: int) -> list[tuple[int, ...]]:
    """One shared beginning, then different ends; the longest need several chunks of prefill."""
    rng = random.Random(1)
    shared = [rng.randrange(3, vocabulary) for _ in range(40)]
    return [tuple(shared + [rng.randrange(3, vocabulary) for _ in range(5 + 9 * i)]) for i in range(count)]


def _compare(
    client: Client,
    folder: Path,
    sigma: float,
    tolerance: float,
    vocabulary: int,
    exclude: tuple[str, ...] = (),
) -> None:
    members = [(0, 0.0), *((seed, sigma * factor) for seed, factor in MEMBERS), (0, 0.0)]
    prompts = _prompts(vocabulary, len(members))
    fresh = [
        Ask(prompt, seed, s, tokens=24, prompt_logprobs=True)
        for prompt, (seed, s) in zip(prompts, members, strict=True)
    ]
    first = client.ask_all(fresh)
    cached = [Ask(a.prompt, a.seed, a.sigma, tokens=24) for a in fresh]
    second = client.ask_all(cached)
    assert all(answer.cached >= 40 for answer in second), [a.cached for a in second]
    silent = client.ask_all([Ask(a.prompt, a.seed, a.sigma, tokens=24, logprobs=False) for a in fresh])

    answers = [*first, *second]
    asks = [*fresh, *cached]
    jobs = [Job((*q.prompt, *a.ids), q.seed, q.sigma) for q, a in zip(asks, answers, strict=True)]
    plain = [Job(job.tokens) for job in jobs[: len(members)]]
    scored = reference_logprobs(folder, [*jobs, *plain], exclude=exclude)
    worst = {"prefill": 0.0, "decode": 0.0, "cached": 0.0}
    for k, (ask, answer, job) in enumerate(zip(asks, answers, jobs, strict=True)):
        right = scored[k].logprobs
        start = len(ask.prompt)
        kind = "decode" if k < len(members) else "cached"
        for given, wanted in zip(answer.logprobs, right[start:], strict=True):
            assert wanted is not None
            worst[kind] = max(worst[kind], abs(given - wanted))
        if ask.prompt_logprobs:
            assert len(answer.prompt_logprobs) == start
            for given, wanted in zip(answer.prompt_logprobs[1:], right[1:start], strict=True):
                assert given is not None
                assert wanted is not None
                worst["prefill"] = max(worst["prefill"], abs(given - wanted))
        if k < len(members) and ask.sigma:
            base = scored[len(jobs) + k].logprobs
            effect = max(abs(x - y) for x, y in zip(right[1:], base[1:], strict=True))
            assert effect >= 100 * tolerance, f"seed {job.seed}: perturbing moves nothing ({effect})"
    print(f"largest difference from the reference: {worst}")
    assert max(worst.values()) <= tolerance, worst
    # Where nobody asked for log-probabilities, the tokens must be those of the right member all the same.
    for k, answer in enumerate(silent):
        scores, start = scored[k], len(fresh[k].prompt)
        for i, token in enumerate(answer.ids):
            if token != first[k].ids[i]:
                break
            near = scores.margins[start + i - 1] < 10 * tolerance
            assert near or token == scores.greedy[start + i - 1]


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_each_row_of_a_mixed_batch_has_the_weights_of_its_member(
    architecture: str, engines: Callable[..., Client], toy_folder: Callable[..., Path]
) -> None:
    folder = toy_folder(architecture)
    client = engines(folder, chunked_prefill_size=64)
    _compare(client, folder, 0.05, 1e-4, 512)


def test_each_row_of_a_mixed_batch_of_smollm2_has_the_weights_of_its_member(
    engines: Callable[..., Client], smollm2_folder: Path
) -> None:
    client = engines(smollm2_folder, chunked_prefill_size=64, dtype="float32")
    _compare(client, smollm2_folder, 0.005, 5e-4, 49152)


def test_every_parameter_is_covered(llama: Client) -> None:
    names = {p.name: p.coverage for p in llama.description.parameters}
    assert "model.embed_tokens.weight" in names
    assert len(names) == 2 + 2 * 9
    assert all(1 <= coverage <= 3 for coverage in names.values())


def test_excluded_parameters_are_left_alone_by_members_and_updates(
    engines: Callable[..., Client], toy_folder: Callable[..., Path], tmp_path: Path
) -> None:
    folder, exclude = toy_folder("qwen2"), ("model.norm.weight", "*.k_proj.*", "model.layers.1.mlp.*")
    client = engines(folder, exclude=list(exclude))
    excluded = {p.name for p in client.description.parameters if p.coverage == engine_pb2.COVERAGE_EXCLUDED}
    assert "model.norm.weight" in excluded
    assert "model.layers.0.self_attn.k_proj.bias" in excluded
    assert "model.layers.0.self_attn.q_proj.bias" not in excluded
    _compare(client, folder, 0.05, 1e-4, 512, exclude)
    client.update(record_of(1, {3: 100, 4: -90}))
    client.snapshot(str(tmp_path / "after"))
    before, after = (
        load_file(folder / "model.safetensors"),
        load_file(tmp_path / "after" / "model.safetensors"),
    )
    assert {name for name in before if (before[name] == after[name]).all()} == excluded
