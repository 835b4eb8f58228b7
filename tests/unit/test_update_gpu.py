"""The same bits on a GPU as on a CPU: noise, updates and digest."""

from __future__ import annotations

import pytest
import torch

from seedbed_server.engine.digest import element_sum
from seedbed_server.engine.update import apply_step
from seedbed_server.noise import Factor, draw, rounding_words
from tests.unit.test_update import NAME, ROLES, make_step, make_weight, same_bits, stores

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SEEDS = [0, 2**32 + 1, 2**63, 2**64 - 1]


def test_noise_has_the_same_bits() -> None:
    for factor in (Factor.A, Factor.B, Factor.VECTOR):
        there = draw(SEEDS, NAME, factor, 3, 100_003, device="cuda")
        assert torch.equal(there.cpu(), draw(SEEDS, NAME, factor, 3, 100_003))
    there = rounding_words(NAME, 7, [0, 1001, 3], 1001, device="cuda")
    assert torch.equal(there.cpu(), rounding_words(NAME, 7, [0, 1001, 3], 1001))


@stores
@pytest.mark.parametrize("members", [16, 516, 700])
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("precision", ["highest", "high"])
def test_updates_have_the_same_bits(
    role: str, members: int, precision: str, dtype: torch.dtype, stochastic: bool
) -> None:
    """TF32 as well: its 11 bits hold every factor, and its sums are float32."""
    weight = make_weight(*((700, 900) if role == "matrix" else (5000,)), dtype=dtype)
    step, there = make_step(members, stochastic=stochastic), weight.cuda()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        apply_step(there, NAME, ROLES[role], step)  # type: ignore[index]
    finally:
        torch.set_float32_matmul_precision(before)
    apply_step(weight, NAME, ROLES[role], step)  # type: ignore[index]
    assert same_bits(there.cpu(), weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_digests_are_equal(dtype: torch.dtype) -> None:
    weight = make_weight(1000, 777, dtype=dtype)
    assert element_sum(weight.cuda()) == element_sum(weight)
