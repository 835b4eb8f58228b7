"""The reference itself: materialised weights against plain torch, on toy models without an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from seedbed_server.engine.layout import Coverage
from seedbed_server.engine.update import Step, apply_step
from seedbed_server.noise import Factor, draw
from tests.reference import materialised
from tests.reference.client import Job, Scored, Update, reference_logprobs
from tests.toys import ARCHITECTURES, Architecture

TOKENS = tuple((37 * i + 11) % 400 + 3 for i in range(40))
UPDATES = (
    Update(1, (3, 2**64 - 1), (127, -90), 2.0**-15, 2.0**-13, stochastic=True),
    Update(2, (8,), (-127,), 2.0**-15, 2.0**-13),
)
JOBS = (
    Job(TOKENS),
    Job(TOKENS, seed=2**63 + 5, sigma=0.03),
    Job(TOKENS[:17], seed=2**63 + 5, sigma=-0.03),
    Job(TOKENS, updates=UPDATES),
    Job(TOKENS[5:], seed=1, sigma=0.02, updates=UPDATES),
)


def _plain(folder: Path, job: Job, dtype: str) -> Tensor:
    """Log-probabilities of the tokens after the first, by torch and the product's own noise."""
    model = materialised.load(str(folder), getattr(torch, dtype))
    covered = {}
    for name, weight in model.named_parameters():
        is_norm = weight.dim() == 1 and "norm" in name
        covered[name] = Coverage.MATRIX if weight.dim() == 2 else Coverage.NORM if is_norm else Coverage.BIAS
    with torch.no_grad():
        for update in job.updates:
            step = Step(**asdict(update))
            for name, weight in model.named_parameters():
                apply_step(weight, name, covered[name], step)
        model = model.float().eval()
        for name, weight in model.named_parameters():
            if covered[name] is Coverage.MATRIX:
                a, b = (
                    draw([job.seed], name, factor, 0, n)[0].double()
                    for factor, n in zip((Factor.A, Factor.B), weight.shape, strict=True)
                )
                weight += (job.sigma / 8 * torch.outer(a, b)).float()
            else:
                v = job.sigma / 8**0.5 * draw([job.seed], name, Factor.VECTOR, 0, len(weight))[0].double()
                weight.copy_(weight * (1 + v) if covered[name] is Coverage.NORM else weight + v)
        logits = model(torch.tensor([job.tokens])).logits[0].double()
    scores: Tensor = logits.log_softmax(-1)
    return scores[torch.arange(len(job.tokens) - 1), torch.tensor(job.tokens[1:])]


def _check(folder: Path, scored: list[Scored], dtype: str = "float32") -> None:
    for job, found in zip(JOBS, scored, strict=True):
        assert found.logprobs[0] is None
        assert len(found.logprobs) == len(found.greedy) == len(found.margins) == len(job.tokens)
        got = torch.tensor(found.logprobs[1:], dtype=torch.float64)
        assert (got - _plain(folder, job, dtype)).abs().max().item() < 2e-5


def _answers(folder: Path, dtype: str = "float32", exclude: tuple[str, ...] = ()) -> list[Scored]:
    request: dict[str, Any] = {
        "folder": str(folder),
        "dtype": dtype,
        "exclude": list(exclude),
        "jobs": [asdict(job) for job in JOBS],
    }
    found = dict(materialised.answers(request))
    return [
        Scored(*(tuple(found[i][key]) for key in ("logprobs", "greedy", "margins"))) for i in range(len(JOBS))
    ]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_materialised_weights_are_those_of_plain_torch(
    architecture: Architecture, toy_folder: Callable[..., Path]
) -> None:
    folder = toy_folder(architecture)
    _check(folder, _answers(folder))


def test_bfloat16_versions_are_those_of_plain_torch(toy_folder: Callable[..., Path]) -> None:
    folder = toy_folder("qwen2")
    _check(folder, _answers(folder, "bfloat16"), "bfloat16")


def test_every_parameter_has_an_effect(toy_folder: Callable[..., Path]) -> None:
    """Leaving any kind of parameter out changes the result by far more than the tolerance of a comparison."""
    folder = toy_folder("qwen2")
    full = _answers(folder)
    for pattern in ("*.bias", "*norm.weight", "model.embed_tokens.weight", "lm_head.weight", "*.down_proj.*"):
        fewer = _answers(folder, exclude=(pattern,))
        assert fewer[0] == full[0]
        for with_all, without in zip(full[1:], fewer[1:], strict=True):
            moved = torch.tensor(with_all.logprobs[1:]) - torch.tensor(without.logprobs[1:])
            assert moved.abs().max().item() > 1e-2, pattern


def test_the_reference_runs_in_a_process_of_its_own(toy_folder: Callable[..., Path]) -> None:
    folder = toy_folder("llama")
    expected = _answers(folder)
    longer = Job((*TOKENS, expected[0].greedy[-1]))
    *scored, last = reference_logprobs(folder, [*JOBS, longer], timeout=120)
    assert scored == expected
    assert last.logprobs[-1] == pytest.approx(max_logprob(folder), abs=1e-5)


def max_logprob(folder: Path) -> float:
    with torch.no_grad():
        logits = materialised.load(str(folder), torch.float32)(torch.tensor([TOKENS])).logits[0, -1]
    return float(logits.double().log_softmax(-1).max())


def test_a_parameter_without_a_rule_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model\.scale: no rule of the noise specification fits"):
        materialised.role("model.scale", (3,))
