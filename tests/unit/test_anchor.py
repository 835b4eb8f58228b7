"""Decay towards the base weights: to the bit, from files that are read a few rows at a time."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from seedbed_server.digests import weights_digest
from seedbed_server.engine import anchor as anchor_module
from seedbed_server.engine import update as update_module
from seedbed_server.engine.anchor import Anchor
from seedbed_server.engine.digest import element_sum
from seedbed_server.engine.layout import Coverage, Layout, Parameter
from seedbed_server.engine.update import Shard, Step, StepError, Target, apply_step, apply_steps
from seedbed_server.engine.weights import WeightsError
from tests.reference import noise as reference
from tests.reference import vectors
from tests.unit.test_update import (
    NAME,
    ROLES,
    STORES,
    bits,
    from_bits,
    make_step,
    make_weight,
    same_bits,
    step_of_page,
    stores,
    twin,
)

DECAY = float(np.float32(0.03))


def decayed(weight: Tensor, base: Tensor, step: Step, coverage: Coverage = Coverage.MATRIX) -> Tensor:
    new = weight.clone()
    apply_step(new, NAME, coverage, step, base=lambda first, last: base[first:last])
    return new


def of_the_reference(weight: Tensor, base: Tensor, step: Step, role: reference.Role) -> Tensor:
    update = replace(twin(step), decay=step.decay)
    return from_bits(reference.updated(bits(weight), NAME, role, update, bits(base)))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_module, "_BLOCK_ELEMENTS", 100)
    monkeypatch.setattr(anchor_module, "_BLOCK_ELEMENTS", 100)


def test_the_page_holds_for_the_product() -> None:
    page = vectors.read()
    for case in page["decays"]:
        step = step_of_page(page, stochastic=case["rounding"] == "stochastic")
        step = replace(step, decay=float.fromhex(page["decay"]["decay"]))
        base, weight, after = (
            from_bits(vectors.bits_of(case[k], case["shape"])) for k in ("base", "before", "after")
        )
        target = Target(
            weight, case["name"], ROLES[case["role"]], base=lambda first, last, base=base: base[first:last]
        )
        apply_steps([target], step)
        assert same_bits(weight, after), case["name"]


@stores
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("members", [1, 16, 517])
def test_a_decayed_update_is_that_of_the_reference(
    role: reference.Role, members: int, dtype: torch.dtype, stochastic: bool, small_blocks: None
) -> None:
    shape = (33, 21) if role == "matrix" else (53,)
    weight, base = make_weight(*shape, dtype=dtype), make_weight(*shape, dtype=dtype, seed=1)
    step = replace(make_step(members, stochastic=stochastic, size=1e-4), decay=DECAY)
    found = decayed(weight, base, step, ROLES[role])
    assert same_bits(found, of_the_reference(weight, base, step, role))
    assert not same_bits(found, decayed(weight, base, replace(step, decay=0.0), ROLES[role]))


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 30),
    columns=st.integers(1, 30),
    decay=st.floats(0, 1, exclude_max=True, width=32),
    exponent=st.integers(-45, 2),
    stored=st.sampled_from(STORES),
)
def test_any_decayed_update_is_that_of_the_reference(
    rows: int, columns: int, decay: float, exponent: int, stored: tuple[torch.dtype, bool]
) -> None:
    k = float(np.float32(10.0**exponent * 1.2345))
    step = Step(3, (5, 7), (127, -3), k, k, stored[1], decay=decay)
    weight = make_weight(rows, columns, dtype=stored[0], seed=rows)
    base = make_weight(rows, columns, dtype=stored[0], seed=columns + 100)
    weight[0, 0] = 1e-40
    assert same_bits(decayed(weight, base, step), of_the_reference(weight, base, step, "matrix"))


@stores
@pytest.mark.parametrize("shards", [2, 3, 4])
@pytest.mark.parametrize("along", [0, 1])
def test_shards_have_the_bits_of_the_whole(
    along: int, shards: int, dtype: torch.dtype, stochastic: bool, small_blocks: None
) -> None:
    m, n = 45, 38
    weight, base = make_weight(m, n, dtype=dtype), make_weight(m, n, dtype=dtype, seed=1)
    step = replace(make_step(stochastic=stochastic), decay=DECAY)
    parts, first = [], 0
    for part, own in zip(weight.chunk(shards, along), base.chunk(shards, along), strict=True):
        new = part.clone()
        shard = Shard(row=first, columns=n) if along == 0 else Shard(column=first, columns=n)
        apply_step(new, NAME, Coverage.MATRIX, step, shard, base=lambda a, b, own=own: own[a:b])
        parts.append(new)
        first += new.shape[along]
    assert same_bits(torch.cat(parts, along), decayed(weight, base, step))


@pytest.mark.parametrize("coverage", [Coverage.MATRIX, Coverage.BIAS, Coverage.NORM])
def test_a_model_at_its_base_is_not_decayed(coverage: Coverage) -> None:
    base = make_weight(*((30, 20) if coverage is Coverage.MATRIX else (50,)))
    step = make_step(8)
    assert same_bits(
        decayed(base, base, replace(step, decay=DECAY), coverage), decayed(base, base, step, coverage)
    )


def test_a_model_that_learns_nothing_more_returns_to_its_base() -> None:
    """(1 - d)^k of the distance is left after k updates of no direction."""
    base, weight = make_weight(24, 24), make_weight(24, 24, seed=1)
    distance = (weight.double() - base.double()).norm().item()
    step = replace(make_step(2), coefficients=(0, 0), decay=float(np.float32(0.1)))
    for _ in range(30):
        weight = decayed(weight, base, step)
    left = (weight.double() - base.double()).norm().item() / distance
    assert math.isclose(left, 0.9**30, rel_tol=1e-4)


def test_in_bfloat16_stochastic_rounding_keeps_a_decay_that_nearest_loses() -> None:
    """A decay of 1e-3 of a distance of one in sixteen is far below what a bfloat16 near 1 can tell."""
    base = torch.full((64, 64), 1.0, dtype=torch.bfloat16)
    weights = {mode: torch.full_like(base, 1.0625) for mode in (False, True)}
    for version in range(1, 201):
        for mode in weights:
            step = Step(version, (1,), (0,), 1.0, 1.0, mode, decay=float(np.float32(1e-3)))
            weights[mode] = decayed(weights[mode], base, step)
    assert bool((weights[False] == 1.0625).all())
    wanted = 0.0625 * (1 - 1e-3) ** 200
    assert abs(weights[True].double().mean().item() - 1 - wanted) < 0.1 * wanted


def test_a_decay_without_a_base_is_refused_before_anything_is_written() -> None:
    first, second = make_weight(9, 9), make_weight(9, 9)
    targets = [
        Target(first, "a", Coverage.MATRIX, base=lambda a, b: second[a:b]),
        Target(second, "b", Coverage.MATRIX),
    ]
    before = first.clone()
    with pytest.raises(StepError, match=r"^decay: 0\.03 .* b does not have"):
        apply_steps(targets, replace(make_step(), decay=DECAY))
    assert same_bits(first, before)


@pytest.mark.parametrize("decay", [1.0, -0.25, math.nan, math.inf, 0.1])
def test_a_decay_that_is_no_share_in_float32_is_refused(decay: float) -> None:
    with pytest.raises(StepError, match=r"^decay: "):
        replace(make_step(), decay=decay)


# --- the files ----------------------------------------------------------------------------------------------


def _layout(weights: dict[str, Tensor]) -> Layout:
    kinds = {1: Coverage.NORM, 2: Coverage.MATRIX}
    parameters = tuple(Parameter(n, kinds[w.dim()], kinds[w.dim()], w) for n, w in sorted(weights.items()))
    return Layout((), parameters)


@pytest.fixture
def base(tmp_path: Path) -> dict[str, Tensor]:
    """A base in two files, as float32."""
    weights = {"a.weight": make_weight(37, 11), "b.weight": make_weight(9, 30, seed=1)}
    norm = {"norm.weight": make_weight(250, seed=2)}
    save_file(weights, tmp_path / "model-1.safetensors")
    save_file(norm, tmp_path / "model-2.safetensors")
    return {**weights, **norm}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_and_sums_are_those_of_the_loaded_base(
    base: dict[str, Tensor], tmp_path: Path, dtype: torch.dtype, small_blocks: None
) -> None:
    loaded = {name: weight.to(dtype) for name, weight in base.items()}
    anchor = Anchor(_layout({name: torch.zeros_like(weight) for name, weight in loaded.items()}), tmp_path)
    for parameter in _layout(loaded):
        read = anchor.rows(parameter)
        assert same_bits(read(0, parameter.shape[0]), parameter.data)
        assert same_bits(read(3, 7), parameter.data[3:7])
    sums = [(p.name, p.shape, element_sum(p.data)) for p in _layout(loaded)]
    assert anchor.sums() == sums
    assert weights_digest(anchor.sums(), base=b"", scope="full", dtype="x") == weights_digest(
        sums, base=b"", scope="full", dtype="x"
    )


def test_a_file_that_was_replaced_or_removed_is_noticed(base: dict[str, Tensor], tmp_path: Path) -> None:
    anchor = Anchor(_layout(base), tmp_path)
    assert not anchor.changed
    file = tmp_path / "model-2.safetensors"
    content = file.read_bytes()
    file.write_bytes(content)
    os.utime(file, ns=(1, 1))
    assert anchor.changed
    again = Anchor(_layout(base), tmp_path)
    assert not again.changed
    file.unlink()
    assert again.changed


def test_a_base_that_lacks_a_parameter_is_refused(base: dict[str, Tensor], tmp_path: Path) -> None:
    layout: Any = _layout({**base, "c.weight": make_weight(2, 2)})
    with pytest.raises(WeightsError, match=r"c\.weight"):
        Anchor(layout, tmp_path)
