"""What an engine refuses to serve, and what it says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from torch import nn

from seedbed.v1 import engine_pb2
from seedbed_server.engine.config import EngineConfig
from seedbed_server.engine.process import EngineProcess, EngineRefusedError
from tests.engine.client import Client


def _refusal(config: EngineConfig) -> str:
    process = EngineProcess(config)
    with pytest.raises(EngineRefusedError) as caught:
        process.start(120)
    assert not process.alive
    assert process.returncode == 3
    return str(caught.value)


def test_a_second_engine_on_the_same_socket_is_refused_and_the_first_goes_on(
    llama: Client, make_config: Callable[..., EngineConfig], toy_folder: Callable[..., Path]
) -> None:
    message = _refusal(make_config(toy_folder("llama"), address=llama.process.address))
    assert "another engine serves" in message
    assert llama.process.address.removeprefix("unix:") in message
    assert llama.state.version == 0


def test_a_corrupt_model_folder_is_refused_by_the_file_that_is_wrong(
    make_config: Callable[..., EngineConfig], toy_folder: Callable[..., Path], tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(toy_folder("llama"), broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    message = _refusal(make_config(broken))
    assert "model.safetensors" in message
    assert "again" in message


def test_a_folder_that_is_not_there_is_refused(
    make_config: Callable[..., EngineConfig], tmp_path: Path
) -> None:
    message = _refusal(make_config(tmp_path / "nowhere"))
    assert "nowhere" in message
    assert "fetch" in message


def test_a_socket_is_for_its_owner_only(llama: Client) -> None:
    path = Path(llama.process.address.removeprefix("unix:"))
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (engine_pb2.Address(seed=1, sigma=0.0), "sigma: 0"),
        (engine_pb2.Address(seed=1, sigma=float("nan")), "sigma: nan"),
        (engine_pb2.Address(seed=1, sigma=float("inf")), "sigma: inf"),
    ],
)
def test_an_address_that_means_no_perturbation_is_refused(
    llama: Client, address: engine_pb2.Address, text: str
) -> None:
    request = engine_pb2.GenerateRequest(text="hello", address=address)
    with pytest.raises(grpc.RpcError) as caught:
        list(llama.stub.Generate(request, timeout=60))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details().startswith(text)


def test_a_seed_of_two_to_the_sixty_four_does_not_fit_the_contract() -> None:
    with pytest.raises(ValueError, match=r"[Vv]alue out of range"):
        engine_pb2.Address(seed=2**64, sigma=0.1)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (engine_pb2.GenerateRequest(), "prompt"),
        (engine_pb2.GenerateRequest(token_ids=engine_pb2.TokenIds()), "token_ids"),
        (engine_pb2.GenerateRequest(token_ids=engine_pb2.TokenIds(ids=[5, 512])), "512"),
        (engine_pb2.GenerateRequest(token_ids=engine_pb2.TokenIds(ids=[5] * 600)), "512"),
    ],
)
def test_a_prompt_that_cannot_be_answered_is_refused(
    llama: Client, request_: engine_pb2.GenerateRequest, text: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(llama.stub.Generate(request_, timeout=60))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in caught.value.details()


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"messages": [{"role": "user", "content": "long " * 600}]}, 400, None),
        ({"messages": "no list"}, 400, "messages"),
        ({"messages": [{"role": "user", "content": "hi"}], "extra_key": "mine"}, 400, "extra_key"),
        ({"messages": [{"role": "user", "content": "hi"}], "max_tokens": -3}, 400, None),
    ],
)
def test_openai_errors_have_the_shape_of_openai(
    llama: Client, body: dict[str, object], status: int, param: str | None
) -> None:
    request = engine_pb2.OpenAIRequest(
        route="/v1/chat/completions", body=json.dumps({"model": "toy", **body}).encode()
    )
    head, chunk, _ = list(llama.stub.OpenAI(request, timeout=60))
    assert head.head.status == status
    error = json.loads(chunk.chunk)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    if param:
        assert error["param"].startswith(param)


def test_health_is_served_as_grpc_defines_it(llama: Client) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    stub = health_pb2_grpc.HealthStub(grpc.insecure_channel(llama.process.address))
    for name in ("", "seedbed.v1.EngineService"):
        reply = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=30)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(health_pb2.HealthCheckRequest(service="seedbed.v1.Nothing"), timeout=30)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_client_that_leaves_ends_its_generation(llama: Client) -> None:
    """With sixteen places, sixteen left answers of 400 tokens would keep a seventeenth waiting."""
    body = {
        "model": "toy",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "ignore_eos": True,
    }
    calls = []
    for _ in range(16):
        request = engine_pb2.OpenAIRequest(
            route="/v1/chat/completions", body=json.dumps({**body, "max_tokens": 450}).encode()
        )
        call = llama.stub.OpenAI(request, timeout=120)
        assert next(call).head.status == 200
        next(call)
        calls.append(call)
    for call in calls:
        call.cancel()
    request = engine_pb2.GenerateRequest(
        text="hello", sampling=engine_pb2.Sampling(max_new_tokens=2, ignore_eos=True)
    )
    assert list(llama.stub.Generate(request, timeout=5))


class TestLayout:
    """Coverage of models, on SGLang's own modules where that needs no engine."""

    @staticmethod
    def _strange() -> nn.Module:
        class Strange(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.experts = nn.Linear(4, 4, bias=False)

        return Strange()

    def test_a_parameter_that_nothing_covers_is_refused_by_name(self) -> None:
        from seedbed_server.engine.layout import LayoutError, lay_out

        with pytest.raises(LayoutError, match=r"experts\.weight: nothing covers.*--exclude"):
            lay_out(self._strange())

    def test_a_pattern_that_matches_nothing_is_refused(self) -> None:
        from seedbed_server.engine.layout import LayoutError, lay_out

        with pytest.raises(LayoutError, match="'gate\\*' matches no parameter"):
            lay_out(self._strange(), exclude=["experts*", "gate*"])

    def test_a_model_of_which_everything_is_excluded_is_refused(self) -> None:
        from seedbed_server.engine.layout import LayoutError, lay_out

        with pytest.raises(LayoutError, match="leaves nothing to perturb"):
            lay_out(self._strange(), exclude=["experts*"])
