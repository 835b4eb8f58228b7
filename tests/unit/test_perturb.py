"""The side path of every kind of module against weights that really are perturbed, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from seedbed_server.engine import perturb
from seedbed_server.engine.address import UNPERTURBED, Address, Namespace
from seedbed_server.engine.config import EngineConfig
from seedbed_server.engine.layout import Coverage, Kind, Layout, Parameter, Site
from seedbed_server.engine.live import Live
from seedbed_server.engine.slots import LinearFactors, NormFactors, SlotTable, VocabularyFactors
from tests.reference import noise as reference

# (rows, addresses): few rows gather their factors, many multiply under a mask.
FEW = [Address(5, 0.3), UNPERTURBED, Address(5, -0.3), Address(2**64 - 1, 0.7), Address(6, 0.1)]
MANY = [address for address in FEW for _ in range(37)]
BATCHES = pytest.mark.parametrize("batch", [FEW, MANY, FEW[:1]], ids=["few", "many", "one"])
TOLERANCE = 2e-5


class Holder(nn.Module):
    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)


def _parameter(name: str, data: torch.Tensor, coverage: Coverage) -> Parameter:
    return Parameter(name, coverage, coverage, data)


def _linear(parts: dict[str, int], columns: int, bias: bool, dtype: torch.dtype = torch.float32) -> Site:
    generator = torch.Generator().manual_seed(1)
    rows = sum(parts.values())
    weight = torch.randn(rows, columns, generator=generator).to(dtype)
    added = torch.randn(rows, generator=generator).to(dtype) if bias else None
    weights, biases, first = [], [], 0
    for name, count in parts.items():
        weights.append(_parameter(f"{name}.weight", weight[first : first + count], Coverage.MATRIX))
        if added is not None:
            biases.append(_parameter(f"{name}.bias", added[first : first + count], Coverage.BIAS))
        first += count
    return Site(Kind.LINEAR, Holder(weight, added), tuple(weights), tuple(biases))


def _table(site: Site, slots: int = 4) -> SlotTable:
    parameters = tuple(sorted((*site.weights, *site.biases), key=lambda p: p.name))
    return SlotTable(Layout((site,), parameters), slots)


def _materialised(parameter: Parameter, address: Address) -> np.ndarray:
    weight = parameter.data.float().numpy()
    if not address.sigma or parameter.coverage is Coverage.EXCLUDED:
        return weight.astype(np.float64)
    role = {Coverage.MATRIX: "matrix", Coverage.BIAS: "bias", Coverage.NORM: "norm"}[parameter.coverage]
    return reference.perturbed(weight, parameter.name, role, address.seed, address.sigma)  # type: ignore[arg-type]


def _rows(batch: list[Address], table: SlotTable) -> perturb.Rows:
    """As in a prefill: each address once, its tokens behind one another."""
    distinct = list(dict.fromkeys(batch))
    rows = perturb.rows_of(distinct, table)
    assert rows is not None
    return rows.repeat([batch.count(a) for a in distinct])


def _close(given: torch.Tensor, wanted: np.ndarray, tolerance: float = TOLERANCE) -> None:
    assert given.shape == wanted.shape
    off = np.abs(given.float().numpy() - wanted).max()
    assert off <= tolerance * max(1.0, np.abs(wanted).max()), off


@BATCHES
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("parts", [{"o": 33}, {"q": 24, "k": 8, "v": 9}, {"gate": 20, "up": 20}])
def test_a_linear_module_answers_each_row_with_its_perturbed_matrices(
    batch: list[Address], bias: bool, parts: dict[str, int]
) -> None:
    site = _linear(parts, 17, bias)
    table = _table(site)
    batch = sorted(batch, key=batch.index)
    x = torch.randn(len(batch), 17, generator=torch.Generator().manual_seed(2))
    module = site.module
    y = nn.functional.linear(x, module.weight, module.bias)  # type: ignore[arg-type]
    factors = table.factors[id(module)]
    assert isinstance(factors, LinearFactors)
    perturb.linear_(y, x, factors, _rows(batch, table), bias)
    wanted = []
    for row, address in zip(x.double().numpy(), batch, strict=True):
        out = np.concatenate([_materialised(w, address) @ row for w in site.weights])
        if bias:
            out += np.concatenate([_materialised(b, address) for b in site.biases])
        wanted.append(out)
    _close(y, np.stack(wanted))


@BATCHES
def test_embedding_and_head_use_the_perturbed_vocabulary_and_leave_the_padding(batch: list[Address]) -> None:
    weight = torch.zeros(64, 17)
    weight[:50] = torch.randn(50, 17, generator=torch.Generator().manual_seed(3))
    parameter = _parameter("model.embed_tokens.weight", weight[:50], Coverage.MATRIX)
    site = Site(Kind.VOCABULARY, Holder(weight), (parameter,))
    table = _table(site)
    rows = _rows(batch, table)
    factors = table.factors[id(site.module)]
    assert isinstance(factors, VocabularyFactors)
    ids = torch.arange(len(batch)) * 7 % 50
    y = weight[ids].clone()
    perturb.embed_(y, ids, factors, rows)
    _close(y, np.stack([_materialised(parameter, a)[i] for a, i in zip(batch, ids.tolist(), strict=True)]))
    x = torch.randn(len(batch), 17, generator=torch.Generator().manual_seed(4))
    logits = x @ weight.t()
    perturb.head_(logits, x, factors, rows)
    wanted = [_materialised(parameter, a) @ r for a, r in zip(batch, x.double().numpy(), strict=True)]
    _close(logits[:, :50], np.stack(wanted))
    assert not logits[:, 50:].any()


@BATCHES
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_norm_scales_each_row_by_its_perturbed_weight(
    batch: list[Address], heads: int, dtype: torch.dtype
) -> None:
    """A small sigma: 1 + sigma eps must not be rounded to bfloat16 before it is used."""
    batch = [Address(a.seed, a.sigma / 100) for a in batch]
    weight = torch.ones(16).to(dtype)
    parameter = _parameter("norm.weight", weight, Coverage.NORM)
    site = Site(Kind.NORM, Holder(weight), (parameter,))
    table = _table(site)
    factors = table.factors[id(site.module)]
    assert isinstance(factors, NormFactors)
    x = torch.randn(len(batch), heads, 16, generator=torch.Generator().manual_seed(5)).to(dtype)
    y = x.clone() if heads > 1 else x[:, 0].clone()
    perturb.norm_(y, factors, _rows(batch, table))
    scale = np.stack([_materialised(parameter, a) for a in batch])[:, None]
    wanted = torch.from_numpy(x.double().numpy() * scale).to(dtype).view(y.shape)
    assert torch.equal(y, wanted) or dtype is torch.float32
    _close(y, wanted.double().numpy())


def test_an_unperturbed_row_among_perturbed_ones_keeps_its_bits() -> None:
    site = _linear({"q": 24, "k": 8, "v": 9}, 17, bias=True)
    table = _table(site)
    factors = table.factors[id(site.module)]
    assert isinstance(factors, LinearFactors)
    for batch in (FEW, MANY):
        x = torch.randn(len(batch), 17, generator=torch.Generator().manual_seed(6))
        y = nn.functional.linear(x, site.module.weight, site.module.bias)  # type: ignore[arg-type]
        before = y.clone()
        perturb.linear_(y, x, factors, _rows(batch, table), bias=True)
        for i, address in enumerate(batch):
            assert torch.equal(y[i], before[i]) == (not address.sigma)


def test_a_row_of_a_small_batch_has_the_same_bits_alone_and_among_others() -> None:
    site = _linear({"q": 24, "k": 8, "v": 9}, 17, bias=False)
    table = _table(site)
    factors = table.factors[id(site.module)]
    assert isinstance(factors, LinearFactors)
    x = torch.randn(len(FEW), 17, generator=torch.Generator().manual_seed(7))
    together = torch.zeros(len(FEW), 41)
    perturb.linear_(together, x, factors, _rows(FEW, table), bias=False)
    for i, address in enumerate(FEW):
        if address.sigma:
            alone = torch.zeros(1, 41)
            perturb.linear_(alone, x[i : i + 1], factors, _rows([address], table), bias=False)
            assert torch.equal(alone[0], together[i])


def test_excluded_parts_of_a_fused_matrix_add_nothing() -> None:
    whole = _linear({"q": 24, "k": 8}, 17, bias=False)
    q, k = whole.weights
    site = Site(Kind.LINEAR, whole.module, (q, Parameter(k.name, Coverage.EXCLUDED, Coverage.MATRIX, k.data)))
    table = _table(site)
    factors = table.factors[id(site.module)]
    assert isinstance(factors, LinearFactors)
    for batch in (FEW, MANY):
        y = torch.zeros(len(batch), 32)
        perturb.linear_(y, torch.ones(len(batch), 17), factors, _rows(batch, table), bias=False)
        assert y[:, :24].any()
        assert not y[:, 24:].any()


def test_rows_that_keep_what_they_gathered_give_the_same_bits() -> None:
    linear = _linear({"q": 24, "k": 8, "v": 9}, 17, bias=True)
    weight = torch.randn(64, 17, generator=torch.Generator().manual_seed(8))
    head = Site(
        Kind.VOCABULARY, Holder(weight), (_parameter("model.embed.weight", weight[:50], Coverage.MATRIX),)
    )
    scale = torch.ones(17)
    norm = Site(Kind.NORM, Holder(scale), (_parameter("norm.weight", scale, Coverage.NORM),))
    sites = (linear, head, norm)
    parameters = sorted((p for site in sites for p in (*site.weights, *site.biases)), key=lambda p: p.name)
    table = SlotTable(Layout(sites, tuple(parameters)), 4)
    rows = perturb.rows_of(FEW, table)
    assert rows is not None
    keeping = rows.keeping()
    assert keeping.keeping() is keeping
    x = torch.randn(len(FEW), 17, generator=torch.Generator().manual_seed(9))
    ids = torch.arange(len(FEW))
    by_module = [table.factors[id(site.module)] for site in sites]

    def outputs(given: perturb.Rows) -> list[torch.Tensor]:
        found = [torch.ones(len(FEW), size) for size in (41, 64, 17, 17)]
        linear_factors, vocabulary, norms = by_module
        assert isinstance(linear_factors, LinearFactors)
        assert isinstance(vocabulary, VocabularyFactors)
        assert isinstance(norms, NormFactors)
        perturb.linear_(found[0], x, linear_factors, given, bias=True)
        perturb.head_(found[1], x, vocabulary, given)
        perturb.embed_(found[2], ids, vocabulary, given)
        perturb.norm_(found[3], norms, given)
        return found

    wanted = outputs(rows)
    for _ in range(3):
        for one, other in zip(outputs(keeping), wanted, strict=True):
            assert torch.equal(one, other)


def test_a_batch_that_stays_the_same_is_gathered_once_and_again_when_slots_changed() -> None:
    site = _linear({"o": 3}, 4, bias=False)
    layout = Layout((site,), site.weights)
    config = EngineConfig(model_path="m", model_name="m", address="unix:/tmp/none.sock")
    live = Live(layout, SlotTable(layout, 2), config, "Toy")
    one, other = (str(Namespace(1, Address(seed, 0.1))) for seed in (1, 2))
    first = live.batch_rows([one, None])
    again = live.batch_rows([one, None])
    assert first is not None
    assert again is not None
    assert torch.equal(first.slot, again.slot)
    assert (first.kept, again.kept) == (None, {})
    assert live.batch_rows([one, None]) is again
    assert live.batch_rows([None, one]) is not again
    assert live.batch_rows([None, None]) is None
    assert live.batch_rows([None, None]) is None
    before = live.batch_rows([one, None])
    # Two others take the places; the same batch must be given its own again.
    live.slots.acquire([2, 3])
    after = live.batch_rows([one, None])
    assert after is not None
    assert after is not before
    (slot,) = (place for seed, place in live.slots.acquire([1]).items() if seed == 1)
    assert int(after.slot[0]) == slot
    assert live.batch_rows([other, None]) is not None


class TestSlots:
    def test_mirrored_members_share_a_slot(self) -> None:
        table = _table(_linear({"o": 3}, 4, bias=False), slots=2)
        perturb.rows_of([Address(1, 0.1), Address(1, -0.1), Address(1, 0.2), UNPERTURBED], table)
        assert table.resident == 1

    def test_the_seed_used_least_recently_gives_way_and_never_one_of_the_batch(self) -> None:
        table = _table(_linear({"o": 3}, 4, bias=False), slots=3)
        table.acquire([1, 2, 3])
        first = table.acquire([1])[1]
        after = table.acquire([4, 1, 3])
        assert after[1] == first
        assert set(after.values()) == {0, 1, 2}
        assert table.acquire([3, 4, 1]) == after

    def test_a_seed_that_comes_back_has_its_factors_again(self) -> None:
        site = _linear({"o": 3}, 4, bias=False)
        table = _table(site, slots=1)
        factors = table.factors[id(site.module)]
        assert isinstance(factors, LinearFactors)
        table.acquire([1])
        first = factors.a.clone()
        table.acquire([2])
        assert not torch.equal(factors.a, first)
        table.acquire([1])
        assert torch.equal(factors.a, first)

    def test_more_seeds_than_slots_in_one_batch_are_refused(self) -> None:
        table = _table(_linear({"o": 3}, 4, bias=False), slots=2)
        with pytest.raises(ValueError, match="3 in one batch, but there are 2 slots"):
            table.acquire([1, 2, 3])
