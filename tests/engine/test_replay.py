"""The journal of a model rebuilds it, to the bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import grpc
import numpy as np
import pytest
from safetensors.numpy import load_file

from seedbed.v1 import engine_pb2
from seedbed_server.learner.estimators import zscore
from seedbed_server.learner.population import lease, open_population, reward_episode
from seedbed_server.learner.schedules import cosine
from seedbed_server.learner.step import Step, make_step
from tests.engine.client import Ask, Client, record_of
from tests.reference import noise as reference
from tests.reference.materialised import role

UPDATES = 52


def _learned_records(client: Client, rng: random.Random) -> list[engine_pb2.UpdateRecord]:
    """Updates as a gateway makes them: populations of mirrored and of one-sided members, under a sigma that
    falls, with requests in between. The second half decays towards the base."""
    sigma, alpha = cosine(0.02, 0.002, UPDATES), cosine(0.02, 0.001, UPDATES)
    records = []
    for version in range(UPDATES):
        population = open_population(
            number=version,
            version=version,
            sigma=sigma(version),
            size=8,
            episodes_per_member=1,
            mirrored=version % 2 == 0,
            run_seed=5,
        )
        asks = []
        for _ in range(8):
            population, member = lease(population, None)
            asks.append(
                Ask((5, 6, 7, 8 + member.index), member.seed, member.sign * population.sigma, tokens=2)
            )
            population = reward_episode(population, member.index, f"e{member.index}", None, rng.random())
        client.ask_all(asks)
        share = 0.02 if version >= UPDATES // 2 else 0.0
        step = make_step(population, zscore, alpha(version), decay=share)
        assert isinstance(step, Step)
        record = record_of(
            version + 1,
            dict(zip(step.seeds, step.coefficients, strict=True)),
            matrix=step.matrix_multiplier,
            vector=step.vector_multiplier,
            decay=step.decay,
        )
        record.from_digest = client.state.digest
        client.update(record)
        records.append(record)
    return records


def test_a_fresh_engine_that_replays_the_journal_has_the_same_digest(
    llama: Client, engines: Callable[..., Client], toy_folder: Callable[..., Path]
) -> None:
    fresh = engines(toy_folder("llama"), slots=64)
    assert fresh.state.version == 0
    records = _learned_records(llama, random.Random(8))
    live = llama.state
    assert live.version == UPDATES
    assert live.digest != llama.description.state.digest
    replayed = fresh.restore(records, digest=live.digest)
    assert replayed.version == UPDATES
    assert replayed.digest == live.digest
    assert fresh.measured_digest() == llama.measured_digest() == live.digest


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_live_digest_is_the_one_that_the_reference_computes_from_the_checkpoint(
    dtype: str, engines: Callable[..., Client], toy_folder: Callable[..., Path]
) -> None:
    """SGLang's fused matrices, our updates on them and the digest over them, against NumPy on the files."""
    architecture = "llama" if dtype == "float32" else "qwen3"
    folder = toy_folder(architecture)
    settings = {"chunked_prefill_size": 64} if dtype == "float32" else {"dtype": dtype}
    client = engines(folder, **settings)
    state = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        state[name] = weight.view(np.uint32) if dtype == "float32" else reference.narrow_nearest(weight)
    base = reference.digest(state, base=b"", scope="full")
    assert client.description.base_digest == base
    assert client.state.digest == reference.digest(state, base=base, scope="full")
    start = state
    for version in (1, 2, 3):
        # With the third, the base weights come into it: read from the disk by the engine.
        decay = 0.25 if version == 3 else 0.0
        record = record_of(
            version,
            {3: 100, 2**64 - 2: -127, 17: version},
            matrix=2.0**-20,
            vector=2.0**-18,
            stochastic=version != 2,
            decay=decay,
        )
        reply = client.update(record)
        step = reference.Update(
            version, (3, 2**64 - 2, 17), (100, -127, version), 2.0**-20, 2.0**-18, version != 2, decay
        )
        state = {
            n: reference.updated(bits, n, role(n, bits.shape), step, start[n]) for n, bits in state.items()
        }
        assert client.state.digest == reference.digest(state, base=base, scope="full")
        if dtype == "bfloat16":
            print(f"cosine of the realised bfloat16 update with the exact one: {reply.cosine:.4f}")
            assert 0.5 < reply.cosine <= 1
        else:
            assert not reply.HasField("cosine")


def test_repeating_an_update_gives_the_same_answer_and_applies_it_once(llama: Client) -> None:
    state = llama.state
    request = engine_pb2.ApplyUpdateRequest(
        term=state.term, from_version=0, from_digest=state.digest, record=record_of(1, {3: 100})
    )
    first = llama.stub.ApplyUpdate(request, timeout=60)
    again = llama.stub.ApplyUpdate(request, timeout=60)
    assert first == again
    assert llama.state.version == 1
    assert llama.measured_digest() == first.state.digest


def _refused(client: Client, request: engine_pb2.ApplyUpdateRequest) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.ApplyUpdate(request, timeout=60)
    return caught.value


def test_an_update_for_other_weights_or_of_a_past_term_is_refused(llama: Client) -> None:
    state, record = llama.state, record_of(1, {3: 100})
    right = {"from_version": 0, "from_digest": state.digest, "record": record}
    for wrong, text in (
        ({"from_version": 4}, "version 4"),
        ({"from_digest": b"x" * 32}, "from_digest"),
        ({"record": record_of(7, {3: 1})}, "version: 7"),
    ):
        request = engine_pb2.ApplyUpdateRequest(term=state.term, **{**right, **wrong})  # type: ignore[arg-type]
        error = _refused(llama, request)
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert text in error.details()
    llama.stub.Describe(engine_pb2.DescribeRequest(term=state.term + 1), timeout=60)
    error = _refused(
        llama,
        engine_pb2.ApplyUpdateRequest(
            term=state.term, from_version=0, from_digest=state.digest, record=record
        ),
    )
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "term" in error.details()
    assert llama.measured_digest() == state.digest


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"coefficients": b"\x80\x01"}, "coefficients"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"seeds": [1]}, "coefficients"),
        ({"seeds": [], "coefficients": b""}, "seeds"),
        ({"matrix_multiplier": float("nan")}, "matrix_multiplier"),
        ({"vector_multiplier": float("inf")}, "vector_multiplier"),
        ({"noise_version": 2}, "noise_version"),
        ({"rank": 3}, "rank"),
        ({"decay": 1.0}, "decay"),
        ({"decay": -0.5}, "decay"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused_by_field_and_changes_nothing(
    llama: Client, change: dict[str, object], field: str
) -> None:
    record = record_of(1, {1: 5, 2: 6})
    for name, value in change.items():
        if isinstance(value, list):
            del getattr(record, name)[:]
            getattr(record, name).extend(value)
        else:
            setattr(record, name, value)
    state = llama.state
    error = _refused(
        llama,
        engine_pb2.ApplyUpdateRequest(
            term=state.term, from_version=0, from_digest=state.digest, record=record
        ),
    )
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details().startswith(field)
    assert llama.measured_digest() == state.digest
