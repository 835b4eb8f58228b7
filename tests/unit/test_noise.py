"""The noise to the bit: known answers, the vectors of docs/noise.md, and the NumPy reference."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbed_server import noise
from seedbed_server.noise import MAX_SEED, Factor, Plan, Segment, check_seed, draw, name_hash, rounding_words
from tests.reference import noise as reference
from tests.reference import vectors

PAGE = vectors.read()
NAMES = ("model.layers.0.mlp.up_proj.weight", "model.norm.weight", "größe.weight", "")
EDGES = [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, MAX_SEED]
seeds = st.one_of(st.sampled_from(EDGES), st.integers(0, MAX_SEED))
# Elements that a counter's 32 bits can hold: i div 4 < 2^32.
far = st.sampled_from([2**31 - 3, 2**32 - 2, 2**34 - 80])
elements = st.one_of(st.integers(0, 40), far, st.integers(0, 2**33))


def _philox(counter: list[int], key: list[int]) -> list[int]:
    words = noise._philox(
        tuple(torch.tensor([c]) for c in counter),  # type: ignore[arg-type]
        key[0] | key[1] << 32,
    )
    return [int(w) for w in words[0].tolist()]


def _numbers(digits: list[str]) -> list[int]:
    return [int(text, 16) for text in digits]


# Known answers of Random123, the authors' own library (kat_vectors: philox4x32, 10 rounds).
@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_gives_the_known_answers(counter: str, key: str, words: str) -> None:
    c, k, expected = _numbers(counter.split()), _numbers(key.split()), _numbers(words.split())
    assert _philox(c, k) == expected
    assert reference.philox4x32_10(np.array(c, dtype=np.uint32), (k[0], k[1])).tolist() == expected


@pytest.mark.parametrize("name", vectors.VECTORS)
def test_the_page_has_the_vectors_that_the_reference_makes(name: str) -> None:
    assert PAGE[name] == json.loads(json.dumps(vectors.VECTORS[name]()))


def test_the_page_holds_for_the_product() -> None:
    for case in PAGE["philox"]:
        assert _philox(_numbers(case["counter"]), _numbers(case["key"])) == _numbers(case["words"])
    for case in PAGE["names"]:
        assert name_hash(case["name"]) == int(case["hash"], 16)
    for case in PAGE["values"]:
        stop = case["start"] + len(case["values"])
        seed, factor, rank_index = int(case["seed"], 16), Factor(case["factor"]), case["rank_index"]
        drawn = draw([seed], case["name"], factor, case["start"], stop, rank_index=rank_index)
        assert drawn[0].tolist() == case["values"]
    for case in PAGE["rounding_words"]:
        drawn = rounding_words(case["name"], case["version"], [case["start"]], len(case["words"]))
        assert drawn[0].tolist() == _numbers(case["words"])


@settings(max_examples=150, deadline=None)
@given(
    seed=seeds,
    name=st.one_of(st.sampled_from(NAMES), st.text(max_size=20)),
    factor=st.sampled_from([Factor.A, Factor.B, Factor.VECTOR]),
    start=elements,
    length=st.integers(0, 70),
    rank_index=st.one_of(st.just(0), st.integers(0, 2**24 - 1)),
)
def test_every_address_has_the_value_of_the_reference(
    seed: int, name: str, factor: Factor, start: int, length: int, rank_index: int
) -> None:
    stop = start + length
    drawn = draw([seed], name, factor, start, stop, rank_index=rank_index)
    assert drawn.dtype == torch.int8
    assert drawn[0].tolist() == reference.values(seed, name, factor, start, stop, rank_index).tolist()


@settings(max_examples=60, deadline=None)
@given(
    version=st.one_of(st.integers(1, 100), st.integers(2**32 - 2, 2**40)),
    name=st.sampled_from(NAMES),
    starts=st.lists(elements, min_size=1, max_size=5),
    width=st.integers(1, 23),
)
def test_rounding_words_are_those_of_the_reference(
    version: int, name: str, starts: list[int], width: int
) -> None:
    drawn = rounding_words(name, version, starts, width)
    index = np.array(starts)[:, None] + np.arange(width)
    assert drawn.tolist() == reference.words(version, name, reference.ROUNDING, index).tolist()


def test_rounding_words_of_nothing_are_nothing() -> None:
    assert rounding_words("w", 1, [], 5).shape == (0, 5)
    assert rounding_words("w", 1, [3, 4], 0).shape == (2, 0)


@settings(max_examples=50, deadline=None)
@given(
    parts=st.lists(
        st.tuples(st.sampled_from(NAMES), st.sampled_from([0, 1, 2]), st.integers(0, 50), st.integers(0, 30)),
        max_size=6,
    ),
    many=st.lists(seeds, min_size=1, max_size=4),
)
def test_a_plan_lays_segments_end_to_end(parts: list[tuple[str, int, int, int]], many: list[int]) -> None:
    plan = Plan([Segment(name, Factor(f), start, start + n) for name, f, start, n in parts])
    expected = [
        [v for name, f, start, n in parts for v in reference.values(seed, name, f, start, start + n).tolist()]
        for seed in many
    ]
    assert plan.length == len(expected[0])
    assert plan.draw_many(many).tolist() == expected
    assert [plan.draw(seed).tolist() for seed in many] == expected


def test_a_part_has_the_values_of_the_whole() -> None:
    whole = draw([11], "w", Factor.A, 0, 1000)[0]
    for start, stop in [(0, 1000), (1, 2), (3, 997), (250, 500), (999, 1000), (7, 7)]:
        assert torch.equal(draw([11], "w", Factor.A, start, stop)[0], whole[start:stop])


def test_streams_have_nothing_in_common_by_name() -> None:
    """Two tensors of one shape must not get the same noise (systems were published that did)."""
    base = draw([3], "model.layers.0.self_attn.q_proj.weight", Factor.A, 0, 64)
    for other in (
        draw([3], "model.layers.1.self_attn.q_proj.weight", Factor.A, 0, 64),
        draw([3], "model.layers.0.self_attn.k_proj.weight", Factor.A, 0, 64),
        draw([3], "model.layers.0.self_attn.q_proj.weight", Factor.B, 0, 64),
        draw([3], "model.layers.0.self_attn.q_proj.weight", Factor.A, 0, 64, rank_index=1),
        draw([4], "model.layers.0.self_attn.q_proj.weight", Factor.A, 0, 64),
    ):
        assert not torch.equal(base, other)


@pytest.mark.parametrize("seed", [2**64, -1, 2**200])
def test_a_seed_outside_64_bits_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match=rf"seed: {seed} is outside 0 to 2\^64 - 1; use"):
        check_seed(seed)
    with pytest.raises(ValueError, match="seed:"):
        draw([1, seed], "w", Factor.A, 0, 4)
    with pytest.raises(ValueError, match="seed:"):
        Plan([Segment("w", Factor.A, 0, 4)]).draw(seed)


def test_the_outermost_seeds_are_good() -> None:
    assert check_seed(0) == 0
    assert check_seed(MAX_SEED) == 2**64 - 1


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (5, 4)])
def test_a_range_that_is_none_is_refused(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match=f"w: elements {start} to {stop} are not a range"):
        Plan([Segment("w", Factor.A, start, stop)])
