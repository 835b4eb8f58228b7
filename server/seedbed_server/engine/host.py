"""Starts SGLang in this process and proves, before anything is served, that our plugin works in it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from seedbed_server.engine import attention, control, plugin
from seedbed_server.engine.address import Address, Namespace
from seedbed_server.engine.config import EngineConfig
from seedbed_server.engine.live import CONFIG_VARIABLE

__all__ = ["RefusedError", "check_hooks", "check_isolation", "check_reach", "describe", "resolve", "start"]


class RefusedError(RuntimeError):
    """The engine does not serve; the message says why and what to do."""


def resolve(config: EngineConfig) -> EngineConfig:
    """The settings with every default filled in for this machine. Raises RefusedError."""
    import torch

    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise RefusedError(
            "device: cuda was asked for, but torch sees no GPU; use cpu, or run setup again with --gpu"
        )
    slots = config.slots or (64 if device == "cuda" else 16)
    dtype = config.dtype
    if dtype == "auto":
        dtype = "bfloat16" if device == "cuda" else "float32"
    return dataclasses.replace(
        config,
        model_path=str(_local(config.model_path)),
        device=device,
        dtype=dtype,
        slots=slots,
        max_running_requests=config.max_running_requests or slots,
        max_total_tokens=config.max_total_tokens or (16384 if device == "cpu" else 0),
    )


def _local(path: str) -> Path:
    """The folder of a model; a hub id is downloaded into the hub's own cache."""
    if Path(path).is_dir():
        return Path(path).resolve()
    if path.startswith(("/", ".", "~")):
        raise RefusedError(
            f"model_path: there is no folder {path}; fetch the model first, or correct the path"
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(path))
    except Exception as error:
        raise RefusedError(
            f"model_path: {path!r} is no local folder and could not be had from the hub "
            f"({type(error).__name__}: {error}); give a local folder, or check the id and the network"
        ) from error


def start(config: EngineConfig) -> Any:
    """An `sglang.Engine` with our plugin in it; `config` is resolved. Raises RefusedError."""
    os.environ[CONFIG_VARIABLE] = config.to_json()
    import sglang

    arguments: dict[str, Any] = {
        "model_path": config.model_path,
        "served_model_name": config.model_name,
        "dtype": config.dtype,
        "device": config.device,
        "max_running_requests": config.max_running_requests,
        "weight_version": "0",
        "log_level": config.log_level,
        "skip_server_warmup": True,
        "enable_cache_report": True,
        "stream_interval": 1,
        # Static row buffers for graph replay do not exist yet.
        "disable_cuda_graph": True,
        "sleep_on_idle": True,
        # Small models that may write any whitespace in JSON write nothing else.
        "constrained_json_disable_any_whitespace": True,
        "random_seed": 0,
    }
    if config.context_length:
        arguments["context_length"] = config.context_length
    if config.max_total_tokens:
        arguments["max_total_tokens"] = config.max_total_tokens
    if config.chunked_prefill_size:
        arguments["chunked_prefill_size"] = config.chunked_prefill_size
    for name in ("tool_call_parser", "reasoning_parser"):
        value = getattr(config, name)
        if value != "none":
            arguments[name] = value or "auto"
    if config.device == "cpu":
        batched = config.attention in ("auto", "batched")
        arguments["attention_backend"] = attention.BACKEND if batched else "torch_native"
        arguments["mem_fraction_static"] = 0.3
        if batched:
            attention.register()
    return sglang.Engine(**arguments)


def check_hooks(description: dict[str, Any]) -> None:
    """Raises RefusedError if a hook was not applied here or in the scheduler."""
    lost = sorted({*plugin.missing(), *description["missing_hooks"]})
    if lost:
        raise RefusedError(
            f"SGLang did not take {len(lost)} of our hooks, first {lost[0]}; "
            "install the pinned release of SGLang with ./run setup"
        )


async def check_isolation(engine: Any) -> None:
    """Proves that SGLang keeps prefixes of different namespaces apart.

    One prompt is asked twice under one namespace, then under another: it must find its prefix in the first
    case, and nothing in the second. Raises RefusedError.
    """
    from sglang.srt.managers.io_struct import GenerateReqInput

    size = engine.tokenizer_manager.model_config.vocab_size
    prompt = [(7 * i) % min(size - 1, 199) + 1 for i in range(24)]

    async def cached(namespace: Namespace) -> int:
        request = GenerateReqInput(
            input_ids=prompt,
            sampling_params={"temperature": 0, "max_new_tokens": 1, "ignore_eos": True},
            extra_key=str(namespace),
        )
        async for answer in engine.tokenizer_manager.generate_request(request, None):
            found = answer["meta_info"]["cached_tokens"]
        return int(found)

    one, other = Namespace(0, Address(1, 1e-3)), Namespace(0, Address(1, -1e-3))
    await cached(one)
    again, isolated = await cached(one), await cached(other)
    if again == 0:
        raise RefusedError("SGLang found no prefix in its own cache; start it with the radix cache on")
    if isolated != 0:
        raise RefusedError(
            f"SGLang matched {isolated} cached tokens across two namespaces, so members would read "
            "each other's cache; install the pinned release of SGLang with ./run setup, and no plugin "
            "that changes its cache"
        )


def check_reach(description: dict[str, Any]) -> None:
    """Raises RefusedError if a module computed a perturbed request without its perturbation."""
    past = description["unreached"]
    if past:
        raise RefusedError(
            f"{past[0]}: SGLang computes this parameter on a way that perturbations do not reach "
            f"({len(past)} in all); exclude it to serve the model all the same, with --exclude {past[0]!r}"
        )


async def describe(engine: Any) -> dict[str, Any]:
    """What the scheduler says of its model. Raises ControlError when the model could not be covered."""
    return await control.call(engine.tokenizer_manager, "describe")
