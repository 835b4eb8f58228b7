"""What an update and the slots cost, beside one pass over the weights."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.harness import median_ratio
from bench.processes import Ours, turn
from seedbed.v1 import engine_pb2

__all__ = ["MEMBERS", "costs"]

MEMBERS = 16


async def costs(
    ours: Ours, model: Path, arguments: argparse.Namespace, console: Console
) -> tuple[dict[str, Any], dict[str, float]]:
    """An update of 16 members and one reading and writing of as many weights, in turns; slots."""
    weights = await asyncio.to_thread(_weights, model, arguments.dtype)
    copies: list[float] = []
    updates: list[engine_pb2.ApplyUpdateResponse] = []
    prepares: list[float] = []
    with turn(ours):
        description = await ours.stub.Describe(engine_pb2.DescribeRequest(), timeout=60)
        state = description.state
    for number in range(arguments.rounds + 1):
        copies.append(await asyncio.to_thread(_copy, weights))
        seeds = [number * 1000 + i for i in range(MEMBERS)]
        with turn(ours):
            answer = await ours.stub.ApplyUpdate(_update(state, seeds), timeout=600)
            started = time.perf_counter()
            await ours.stub.PrepareMembers(engine_pb2.PrepareMembersRequest(seeds=seeds), timeout=600)
            prepares.append(time.perf_counter() - started)
        state = answer.state
        updates.append(answer)
    # The first of each is a warm-up.
    seconds = [u.update_seconds for u in updates[1:]]
    digests = [u.digest_seconds for u in updates[1:]]
    console.print(f"update {statistics.median(seconds):.3f} s, copy {statistics.median(copies[1:]):.3f} s")
    samples = {"update_seconds": seconds, "copy_seconds": copies[1:], "prepare16_seconds": prepares[1:]}
    return samples, {
        "update_over_copy": median_ratio(seconds, copies[1:]),
        "digest_over_copy": median_ratio(digests, copies[1:]),
        "slots_over_weights": description.slot_bytes / description.weight_bytes,
        "update_seconds": statistics.median(seconds),
        "update_pause_seconds": statistics.median(u.seconds for u in updates[1:]),
        "copy_seconds": statistics.median(copies[1:]),
        "prepare16_seconds": statistics.median(prepares[1:]),
    }


def _update(state: engine_pb2.State, seeds: list[int]) -> engine_pb2.ApplyUpdateRequest:
    """A step with coefficients for all members, so small that the model stays what it is."""
    small = 2.0**-40
    record = engine_pb2.UpdateRecord(
        version=state.version + 1,
        noise_version=1,
        rank=1,
        seeds=seeds,
        coefficients=bytes((17 * i + 1) % 128 for i in range(len(seeds))),
        matrix_multiplier=small,
        vector_multiplier=small,
        rounding=engine_pb2.ROUNDING_STOCHASTIC,
        from_digest=state.digest,
    )
    return engine_pb2.ApplyUpdateRequest(from_version=state.version, from_digest=state.digest, record=record)


def _weights(model: Path, dtype: str) -> list[Any]:
    import torch
    from safetensors.torch import load_file

    return [
        tensor.to(getattr(torch, dtype)).clone()
        for path in sorted(model.glob("*.safetensors"))
        for tensor in load_file(path).values()
    ]


def _copy(weights: list[Any]) -> float:
    """Seconds of reading and writing every weight once."""
    started = time.perf_counter()
    for tensor in weights:
        tensor.mul_(1)
    return time.perf_counter() - started
