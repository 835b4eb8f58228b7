"""The digest: equal for equal weights however they are laid out, different for anything else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from seedbed_server.digests import FileDamaged, bits_sum, file_sums
from seedbed_server.engine import digest as digest_module
from seedbed_server.engine.digest import element_sum, weights_digest
from seedbed_server.engine.update import Shard
from tests.reference import noise as reference
from tests.reference import vectors
from tests.unit.test_update import bits, from_bits, make_weight

DTYPES = [torch.float32, torch.bfloat16]
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "bfloat16"])
BASE = bytes(range(32))


def whole(parameters: dict[str, Tensor], base: bytes = BASE, scope: str = "full") -> bytes:
    dtype = str(next(iter(parameters.values())).dtype).removeprefix("torch.")
    sums = [(name, tuple(w.shape), element_sum(w)) for name, w in parameters.items()]
    return weights_digest(sums, base=base, scope=scope, dtype=dtype)


def model(dtype: torch.dtype) -> dict[str, Tensor]:
    return {
        "model.embed_tokens.weight": make_weight(40, 16, dtype=dtype, seed=1),
        "model.layers.0.mlp.up_proj.weight": make_weight(24, 16, dtype=dtype, seed=2),
        "model.layers.0.mlp.gate_proj.weight": make_weight(24, 16, dtype=dtype, seed=3),
        "model.norm.weight": make_weight(16, dtype=dtype, seed=4),
    }


def test_the_page_holds_for_the_product() -> None:
    page = vectors.read()
    before = {
        (u["name"], u["dtype"]): from_bits(vectors.bits_of(u["before"], u["shape"])) for u in page["updates"]
    }
    for case in page["digests"]:
        parameters = {name: before[name, case["dtype"]] for name in case["sums"]}
        assert {n: f"{element_sum(w):016x}" for n, w in parameters.items()} == case["sums"]
        assert whole(parameters, bytes.fromhex(case["base"]), case["scope"]).hex() == case["digest"]


@settings(max_examples=60, deadline=None)
@given(
    shape=st.one_of(st.tuples(st.integers(1, 30)), st.tuples(st.integers(1, 30), st.integers(1, 30))),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**31),
)
def test_any_sum_is_that_of_the_reference(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> None:
    """Over all bit patterns, infinities and NaN as well."""
    kind = np.uint32 if dtype == torch.float32 else np.uint16
    stored = np.random.default_rng(seed).integers(0, 2 ** (8 * np.dtype(kind).itemsize), shape, dtype=kind)
    assert element_sum(from_bits(stored)) == reference.element_sum(stored)
    assert bits_sum(stored.reshape(-1)) == reference.element_sum(stored)


@dtypes
def test_the_digest_is_that_of_the_reference(dtype: torch.dtype) -> None:
    parameters = model(dtype)
    for base in (b"", BASE):
        expected = reference.digest({n: bits(w) for n, w in parameters.items()}, base=base, scope="full")
        assert whole(parameters, base) == expected


@dtypes
@pytest.mark.parametrize("count", [2, 3, 4])
def test_shards_add_up_to_the_whole(dtype: torch.dtype, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    weight, vector = make_weight(37, 29, dtype=dtype), make_weight(41, dtype=dtype)
    expected, expected_vector = element_sum(weight), element_sum(vector)
    monkeypatch.setattr(digest_module, "_BLOCK", 64)
    assert element_sum(weight) == expected
    rows, columns = torch.arange(37).tensor_split(count), torch.arange(29).tensor_split(count)
    by_rows = sum(element_sum(weight[r], Shard(int(r[0]), 0, 29)) for r in rows)
    by_columns = sum(element_sum(weight[:, c], Shard(0, int(c[0]), 29)) for c in columns)
    tiles = sum(element_sum(weight[r][:, c], Shard(int(r[0]), int(c[0]), 29)) for r in rows for c in columns)
    parts = sum(element_sum(vector[i], Shard(int(i[0]))) for i in torch.arange(41).tensor_split(count))
    assert by_rows % 2**64 == by_columns % 2**64 == tiles % 2**64 == expected
    assert parts % 2**64 == expected_vector


@dtypes
def test_views_and_fused_layouts_have_the_same_sum(dtype: torch.dtype) -> None:
    weight = make_weight(12, 10, dtype=dtype)
    expected = element_sum(weight)
    fused = torch.zeros(30, 14, dtype=dtype)
    fused[5:17, 2:12] = weight
    assert element_sum(fused[5:17, 2:12]) == expected
    assert element_sum(weight.t().contiguous().t()) == expected


@dtypes
def test_padding_is_not_counted(dtype: torch.dtype) -> None:
    padded = make_weight(64, 8, dtype=dtype)
    before = element_sum(padded[:60])
    padded[60:] = 1
    assert element_sum(padded[:60]) == before


@dtypes
def test_the_order_of_parameters_changes_nothing(dtype: torch.dtype) -> None:
    parameters = model(dtype)
    assert whole(dict(reversed(list(parameters.items())))) == whole(parameters)


@dtypes
def test_any_flipped_bit_is_seen(dtype: torch.dtype) -> None:
    parameters = model(dtype)
    seen = {whole(parameters)}
    flips = 0
    for name, weight in parameters.items():
        stored = bits(weight)
        flat = stored.reshape(-1)
        for index in (0, 1, flat.size // 2, flat.size - 1):
            for bit in range(8 * stored.itemsize):
                changed = flat.copy()
                changed[index] ^= 1 << bit
                seen.add(whole({**parameters, name: from_bits(changed.reshape(stored.shape))}))
                flips += 1
    assert len(seen) == 1 + flips


@dtypes
def test_what_is_swapped_is_seen(dtype: torch.dtype) -> None:
    parameters = model(dtype)
    up, gate = "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.gate_proj.weight"
    elements, rows, turned = (parameters[up].clone() for _ in range(3))
    elements[0, 0], elements[0, 1] = parameters[up][0, 1], parameters[up][0, 0]
    rows[[2, 5]] = rows[[5, 2]]
    variants = [
        parameters,
        {**parameters, up: elements},
        {**parameters, up: rows},
        {**parameters, up: turned.t().contiguous()},
        {**parameters, up: turned.view(12, 32)},
        {**parameters, up: parameters[gate], gate: parameters[up]},
        {n: w for n, w in parameters.items() if n != gate},
    ]
    assert len({whole(variant) for variant in variants}) == len(variants)


def test_what_the_weights_mean_is_in_the_digest() -> None:
    sums = [("w", (4,), 7)]
    digests = {
        weights_digest(sums, base=b"", scope="full", dtype="float32"),
        weights_digest(sums, base=BASE, scope="full", dtype="float32"),
        weights_digest(sums, base=b"", scope="all-linear", dtype="float32"),
        weights_digest(sums, base=b"", scope="full", dtype="bfloat16"),
        weights_digest([("v", (4,), 7)], base=b"", scope="full", dtype="float32"),
        weights_digest([("w", (2, 2), 7)], base=b"", scope="full", dtype="float32"),
        weights_digest([("w", (4,), 8)], base=b"", scope="full", dtype="float32"),
    }
    assert len(digests) == 7
    assert all(len(digest) == 32 for digest in digests)


def test_zeros_of_both_signs_differ() -> None:
    assert element_sum(torch.tensor([0.0])) != element_sum(torch.tensor([-0.0]))


@dtypes
def test_the_sums_of_a_file_are_those_of_its_tensors(dtype: torch.dtype, tmp_path: Path) -> None:
    parameters = {**model(dtype), "large": make_weight(300, 257, dtype=dtype, seed=9)}
    save_file(parameters, tmp_path / "model.safetensors", metadata={"format": "pt"})
    found = {name: (shape, total) for name, shape, total in file_sums(tmp_path / "model.safetensors")}
    assert found == {n: (tuple(w.shape), element_sum(w)) for n, w in parameters.items()}


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_damaged_file_has_other_sums_or_is_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    parameters = {"a": make_weight(3, 5, seed=1), "b": make_weight(4, seed=2)}
    path = tmp_path_factory.mktemp("file") / "model.safetensors"
    save_file(parameters, path)
    whole_file, before = path.read_bytes(), list(file_sums(path))
    if data.draw(st.booleans()):
        damaged = whole_file[: data.draw(st.integers(0, len(whole_file) - 1))]
    else:
        at, bit = data.draw(st.integers(0, len(whole_file) - 1)), data.draw(st.integers(0, 7))
        damaged = whole_file[:at] + bytes([whole_file[at] ^ (1 << bit)]) + whole_file[at + 1 :]
    path.write_bytes(damaged)
    said = ""
    try:
        found = list(file_sums(path))
    except FileDamaged as error:
        found = []
        said = str(error)
    if not found:
        assert "model.safetensors" in said
    else:
        # A flipped bit in the padding or the order of the header changes no weight.
        header = 8 + int.from_bytes(whole_file[:8], "little")
        changed = [i for i, (x, y) in enumerate(zip(whole_file, damaged, strict=False)) if x != y]
        assert found != before or (changed and changed[0] < header)
