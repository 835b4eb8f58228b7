"""Updates to the bit: equal to the NumPy reference, and equal however the work is cut up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seedbed_server.engine import update as update_module
from seedbed_server.engine.layout import Coverage
from seedbed_server.engine.update import Shard, Step, StepError, Tally, apply_step
from tests.reference import noise as reference
from tests.reference import vectors

NAME = "model.layers.0.self_attn.k_proj.weight"
ROLES: dict[reference.Role, Coverage] = {
    "matrix": Coverage.MATRIX,
    "bias": Coverage.BIAS,
    "norm": Coverage.NORM,
}
# Live dtype and rounding of every way to store a weight.
STORES = [(torch.float32, False), (torch.bfloat16, False), (torch.bfloat16, True)]
stores = pytest.mark.parametrize(("dtype", "stochastic"), STORES, ids=["float32", "nearest", "stochastic"])


def make_step(members: int = 16, *, version: int = 3, stochastic: bool = False, size: float = 1e-5) -> Step:
    """A step of many members; the same arguments give the same one."""
    rng = np.random.default_rng(members)
    seeds = {2**64 - 1, *rng.integers(0, 2**64, members - 1, dtype=np.uint64).tolist()}
    return Step(
        version=version,
        seeds=tuple(sorted(seeds, key=str)),
        coefficients=tuple(rng.integers(-127, 128, members).tolist()),
        matrix_multiplier=float(np.float32(size)),
        vector_multiplier=float(np.float32(size * math.sqrt(8))),
        stochastic=stochastic,
    )


def step_of_page(page: dict[str, Any], *, stochastic: bool) -> Step:
    """The record of docs/noise.md."""
    record = page["update_record"]
    return Step(
        version=record["version"],
        seeds=tuple(int(seed, 16) for seed in record["seeds"]),
        coefficients=tuple(record["coefficients"]),
        matrix_multiplier=float.fromhex(record["matrix_multiplier"]),
        vector_multiplier=float.fromhex(record["vector_multiplier"]),
        stochastic=stochastic,
    )


def make_weight(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def bits(weight: Tensor) -> Any:
    """The stored bits, as unsigned NumPy integers."""
    if weight.dtype == torch.float32:
        return weight.contiguous().view(torch.int32).numpy().view(np.uint32)
    return weight.contiguous().view(torch.int16).numpy().view(np.uint16)


def from_bits(stored: Any) -> Tensor:
    if stored.dtype == np.uint32:
        return torch.from_numpy(stored.view(np.int32).copy()).view(torch.float32)
    return torch.from_numpy(stored.view(np.int16).copy()).view(torch.bfloat16)


def stepped(weight: Tensor, step: Step, name: str = NAME, coverage: Coverage = Coverage.MATRIX) -> Tensor:
    new = weight.clone()
    apply_step(new, name, coverage, step)
    return new


def twin(step: Step) -> reference.Update:
    return reference.Update(
        step.version,
        step.seeds,
        step.coefficients,
        step.matrix_multiplier,
        step.vector_multiplier,
        step.stochastic,
    )


def same_bits(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and bool(np.array_equal(bits(first), bits(second)))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a pass over a small matrix take several blocks."""
    monkeypatch.setattr(update_module, "_BLOCK_ELEMENTS", 100)


def test_the_page_holds_for_the_product() -> None:
    page = vectors.read()
    for case in page["updates"]:
        step = step_of_page(page, stochastic=case["rounding"] == "stochastic")
        before = from_bits(vectors.bits_of(case["before"], case["shape"]))
        after = from_bits(vectors.bits_of(case["after"], case["shape"]))
        assert same_bits(stepped(before, step, case["name"], ROLES[case["role"]]), after), case["name"]


def test_the_page_holds_for_rounding() -> None:
    for case in vectors.read()["rounding"]:
        value = from_bits(np.array([int(case["float32"], 16)], dtype=np.uint32))
        assert bits(value.to(torch.bfloat16)).tolist() == [int(case["nearest"], 16)]
        for word, rounded in case["stochastic"].items():
            got = update_module._round_stochastically(value, torch.tensor([int(word, 16)]))
            assert bits(got).tolist() == [int(rounded, 16)]


@stores
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("members", [1, 16, 516, 517])
def test_an_update_is_that_of_the_reference(
    role: reference.Role, members: int, dtype: torch.dtype, stochastic: bool, small_blocks: None
) -> None:
    shape = (33, 21) if role == "matrix" else (53,)
    weight = make_weight(*shape, dtype=dtype)
    step = make_step(members, stochastic=stochastic, size=1e-4)
    expected = reference.updated(bits(weight), NAME, role, twin(step))
    assert same_bits(stepped(weight, step, NAME, ROLES[role]), from_bits(expected))
    assert not np.array_equal(expected, bits(weight))


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    seeds=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8, unique=True),
    data=st.data(),
    exponent=st.integers(-45, 3),
    version=st.integers(1, 2**40),
    stored=st.sampled_from(STORES),
)
def test_any_update_is_that_of_the_reference(
    rows: int,
    columns: int,
    seeds: list[int],
    data: st.DataObject,
    exponent: int,
    version: int,
    stored: tuple[torch.dtype, bool],
) -> None:
    """From steps that are lost in subnormal numbers to such that are far larger than the weights."""
    coefficients = data.draw(st.lists(st.integers(-127, 127), min_size=len(seeds), max_size=len(seeds)))
    k = float(np.float32(10.0**exponent * 1.2345))
    step = Step(version, tuple(seeds), tuple(coefficients), k, k, stored[1])
    weight = make_weight(rows, columns, dtype=stored[0], seed=rows)
    weight[0, 0] = 1e-40
    expected = reference.updated(bits(weight), NAME, "matrix", twin(step))
    assert same_bits(stepped(weight, step), from_bits(expected))


def test_more_members_than_float32_can_sum_stay_exact() -> None:
    """Sums beyond 2^24 whose last bit a float32 sum loses on its way, and one in int32 does not."""
    rng = np.random.default_rng(0)
    left = rng.integers(1, 127 * 16 + 1, (64, 3000))
    right = rng.integers(1, 17, (3000, 48))
    a, b = (torch.from_numpy(x.astype(np.float32)) for x in (left, right))
    exact = (left @ right).astype(np.float32)
    assert np.array_equal(update_module._integer_sum(a, b).numpy(), exact)
    assert not np.array_equal((a @ b).numpy(), exact)
    # The most that 516 members can make is still an integer that float32 has, whatever the order.
    most = torch.full((1, 516), 127.0 * 16), torch.full((516, 1), 16.0)
    most[0][0, 0] = 127.0 * 16 - 1
    assert update_module._integer_sum(*most).item() == 127 * 256 * 516 - 16


def _row_shards(rows: int, count: int) -> list[tuple[int, int]]:
    """Uneven parts: the first is one row short."""
    even = [round(i * rows / count) for i in range(count + 1)]
    even[1] -= 1
    return list(pairwise(even))


@stores
@pytest.mark.parametrize("shards", [2, 3, 4])
@pytest.mark.parametrize("along", ["rows", "columns"])
def test_shards_have_the_bits_of_the_whole(
    along: str, shards: int, dtype: torch.dtype, stochastic: bool, small_blocks: None
) -> None:
    """Column-parallel layers hold some rows of a checkpoint matrix, row-parallel ones some columns."""
    m, n = 45, 38
    weight, step = make_weight(m, n, dtype=dtype), make_step(stochastic=stochastic)
    whole = stepped(weight, step)
    parts = []
    for first, last in _row_shards(m if along == "rows" else n, shards):
        if along == "rows":
            part, shard = weight[first:last].clone(), Shard(row=first, columns=n)
        else:
            part, shard = weight[:, first:last].clone(), Shard(column=first, columns=n)
        apply_step(part, NAME, Coverage.MATRIX, step, shard)
        parts.append(part)
    assert same_bits(torch.cat(parts, 0 if along == "rows" else 1), whole)


@stores
def test_a_tile_has_the_bits_of_the_whole(dtype: torch.dtype, stochastic: bool) -> None:
    weight, step = make_weight(30, 29, dtype=dtype), make_step(stochastic=stochastic)
    tile = weight[7:21, 5:18].clone()
    apply_step(tile, NAME, Coverage.MATRIX, step, Shard(7, 5, 29))
    assert same_bits(tile, stepped(weight, step)[7:21, 5:18])


@stores
@pytest.mark.parametrize("coverage", [Coverage.BIAS, Coverage.NORM])
@pytest.mark.parametrize("shards", [2, 3, 4])
def test_shards_of_vectors_have_the_bits_of_the_whole(
    coverage: Coverage, shards: int, dtype: torch.dtype, stochastic: bool
) -> None:
    weight, step = make_weight(50, dtype=dtype), make_step(stochastic=stochastic)
    parts = []
    for first, last in _row_shards(50, shards):
        part = weight[first:last].clone()
        apply_step(part, NAME, coverage, step, Shard(row=first))
        parts.append(part)
    assert same_bits(torch.cat(parts), stepped(weight, step, NAME, coverage))


@stores
@pytest.mark.parametrize("members", [16, 700])
def test_fused_matrices_have_the_bits_of_single_ones(
    members: int, dtype: torch.dtype, stochastic: bool, small_blocks: None
) -> None:
    """q, k and v as views of one matrix, and the same as columns of a wider one, neighbours untouched."""
    step = make_step(members, stochastic=stochastic)
    names = [f"model.layers.0.self_attn.{p}_proj.weight" for p in "qkv"]
    sizes = [24, 8, 8]
    fused = make_weight(sum(sizes) + 3, 20, dtype=dtype)
    wide = make_weight(24, 50, dtype=dtype)
    before_fused, before_wide = fused.clone(), wide.clone()
    alone, start = [], 0
    for name, size in zip(names, sizes, strict=True):
        alone.append(stepped(fused[start : start + size], step, name))
        start += size
    start = 0
    for name, size in zip(names, sizes, strict=True):
        apply_step(fused[start : start + size], name, Coverage.MATRIX, step)
        start += size
    assert same_bits(fused[:start], torch.cat(alone))
    assert same_bits(fused[start:], before_fused[start:])
    apply_step(wide[:, 10:30], names[0], Coverage.MATRIX, step)
    assert same_bits(wide[:, 10:30], stepped(before_wide[:, 10:30], step, names[0]))
    assert same_bits(wide[:, :10], before_wide[:, :10])
    assert same_bits(wide[:, 30:], before_wide[:, 30:])


@stores
@pytest.mark.parametrize("coverage", [Coverage.MATRIX, Coverage.NORM])
@pytest.mark.parametrize("members", [16, 516, 600])
def test_the_order_of_members_changes_no_bit(
    members: int, coverage: Coverage, dtype: torch.dtype, stochastic: bool
) -> None:
    weight = make_weight(*((40, 31) if coverage is Coverage.MATRIX else (61,)), dtype=dtype)
    step = make_step(members, stochastic=stochastic)
    first = stepped(weight, step, NAME, coverage)
    for trial in range(3):
        order = np.random.default_rng(trial).permutation(members)
        other = replace(
            step,
            seeds=tuple(step.seeds[i] for i in order),
            coefficients=tuple(step.coefficients[i] for i in order),
        )
        assert same_bits(stepped(weight, other, NAME, coverage), first)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@stores
def test_the_number_of_threads_changes_no_bit(dtype: torch.dtype, stochastic: bool, threads: None) -> None:
    weight, step = make_weight(300, 257, dtype=dtype), make_step(64, stochastic=stochastic)
    torch.set_num_threads(1)
    one = stepped(weight, step)
    torch.set_num_threads(2)
    assert same_bits(stepped(weight, step), one)


def test_a_member_without_a_coefficient_moves_nothing() -> None:
    weight, step = make_weight(20, 20), make_step(4)
    fewer = replace(step, seeds=step.seeds[:3], coefficients=step.coefficients[:3])
    zero = replace(step, coefficients=(*step.coefficients[:3], 0))
    assert same_bits(stepped(weight, fewer), stepped(weight, zero))


def test_an_excluded_parameter_is_left_alone() -> None:
    weight = make_weight(9, 9)
    assert same_bits(stepped(weight, make_step(), NAME, Coverage.EXCLUDED), weight)


def test_an_update_moves_against_the_noise_of_bad_members() -> None:
    """theta += k c E: the direction is right, not only the bits."""
    step = Step(1, (5,), (100,), float(np.float32(1e-3)), float(np.float32(1e-3)), stochastic=False)
    e = torch.from_numpy(reference.perturbation(5, NAME, (16, 12)))
    moved = stepped(torch.zeros(16, 12), step).double()
    assert torch.allclose(moved, 100 * float(np.float32(1e-3)) * 8 * e, rtol=1e-6)
    back = stepped(torch.zeros(16, 12), replace(step, coefficients=(-100,)))
    assert torch.equal(back, -moved.float())


@pytest.mark.parametrize("role", ROLES)
def test_the_mean_of_stochastic_roundings_is_the_float32_value(role: reference.Role) -> None:
    """Over many versions, which differ in their rounding words only."""
    trials = 1000
    shape = (24, 24) if role == "matrix" else (576,)
    weight = make_weight(*shape, dtype=torch.bfloat16)
    step = make_step(4, stochastic=True, size=1e-5)
    exact = stepped(weight.float(), step, NAME, ROLES[role]).double()
    total = torch.zeros(shape, dtype=torch.float64)
    for version in range(1, trials + 1):
        total += stepped(weight, replace(step, version=version), NAME, ROLES[role]).double()
    # A rounding is one of two neighbours, one gap apart: variance gap^2 p (1 - p).
    stored = bits(exact.float()).astype(np.int64)
    p = torch.from_numpy((stored & 0xFFFF) / 65536.0)
    below, above = (from_bits(((stored >> 16) + up).astype(np.uint16)).double() for up in (0, 1))
    error = (above - below).abs() * (p * (1 - p) / trials).sqrt()
    off = total / trials - exact
    assert bool((off[p == 0] == 0).all())
    z = (off / error)[p * (1 - p) * trials > 5].numpy()
    assert len(z) > 400
    assert np.abs(z).max() < 5.0
    assert abs(z.mean()) * math.sqrt(len(z)) < 5.0
    assert abs((z**2).mean() - 1) < 5.0 * math.sqrt(2 / len(z))


def test_the_cosine_of_the_realised_step_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """bf16 keeps 8 bits: of a small step nearest rounding loses a part, stochastic rounding adds noise to it.

    Prints cosine and kept share (projection on the exact step) for weights of deviation 0.05.
    """
    weight = (0.05 * make_weight(576, 192)).to(torch.bfloat16)
    stored = bits(weight)
    before = reference.widen(stored).astype(np.float64)
    cosines: dict[tuple[int, float, bool], float] = {}
    lines = ["members   alpha  nearest: cosine   kept  stochastic: cosine   kept"]
    for members in (16, 64):
        for alpha in (1e-4, 1e-3, 1e-2):
            line = f"{members:7}  {alpha:.0e}"
            for stochastic in (False, True):
                # The largest z-score is about 2.
                step = make_step(members, stochastic=stochastic, size=alpha * 2 / 127 / (members * 8))
                tally, new = Tally(), weight.clone()
                apply_step(new, NAME, Coverage.MATRIX, step, tally=tally)
                realised = new.double().numpy() - before
                exact = reference.updated_exactly(stored, NAME, "matrix", twin(step)) - before
                dot, norm = float((realised * exact).sum()), float((exact**2).sum())
                cosine, kept = dot / math.sqrt(norm * float((realised**2).sum())), dot / norm
                assert tally.cosine == pytest.approx(cosine, abs=1e-5)
                if stochastic:  # unbiased: no part of the step is lost
                    noise = math.sqrt(float(((realised - exact) ** 2).mean()))
                    assert abs(kept - 1) < 5 * noise / math.sqrt(norm)
                cosines[members, alpha, stochastic] = cosine
                line += (
                    f"  {cosine:15.4f}  {kept:5.3f}" if not stochastic else f"  {cosine:18.4f}  {kept:5.3f}"
                )
            lines.append(line)
    with capsys.disabled():
        print("\ncosine of the realised bf16 step with the exact one\n" + "\n".join(lines))
    for members in (16, 64):
        assert (
            0.1 < cosines[members, 1e-4, True] < cosines[members, 1e-3, True] < cosines[members, 1e-2, True]
        )
        assert min(cosines[members, 1e-2, False], cosines[members, 1e-2, True]) > 0.98


def test_no_step_has_no_cosine() -> None:
    tally, weight = Tally(), make_weight(8, 8, dtype=torch.bfloat16)
    apply_step(weight, NAME, Coverage.MATRIX, replace(make_step(2), coefficients=(0, 0)), tally=tally)
    assert tally.cosine is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 0}, "version: 0 is made by no update"),
        ({"noise_version": 2}, r"noise_version: 2 is not spoken here \(this is 1\)"),
        ({"rank": 2}, "rank: 2 is not supported"),
        ({"seeds": (), "coefficients": ()}, "seeds: none given"),
        ({"seeds": (1, 2**64)}, r"seed: 18446744073709551616 is outside"),
        ({"seeds": (1, -1)}, "seed: -1 is outside"),
        ({"seeds": (7, 7)}, "seeds: one is given twice"),
        ({"coefficients": (1,)}, "coefficients: 1 for 2 seeds"),
        ({"coefficients": (1, 128)}, "coefficients: one is outside -127 to 127"),
        ({"coefficients": (-128, 1)}, "coefficients: one is outside -127 to 127"),
        ({"matrix_multiplier": math.nan}, "matrix_multiplier: nan is not finite"),
        ({"vector_multiplier": -math.inf}, "vector_multiplier: -inf is not finite"),
        ({"matrix_multiplier": 0.1}, "matrix_multiplier: 0.1 is no float32 number"),
    ],
)
def test_a_step_that_says_nothing_sound_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(StepError, match=message):
        replace(make_step(2), **change)


def test_weights_of_another_dtype_are_refused() -> None:
    with pytest.raises(StepError, match=f"{NAME}: torch.float16 weights cannot be updated"):
        stepped(torch.zeros(4, 4, dtype=torch.float16), make_step(2))
