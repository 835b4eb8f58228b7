"""What perturbing costs: 16 requests at once, each answered by another member, beside those who do not.

All processes are started once and stay alive; those that are not on turn are suspended. One round drives
every side with the same 16 prompts, one side after another, in an order that is turned round every time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.engine_costs import MEMBERS, costs
from bench.harness import Result, conditions, median_ratio
from bench.processes import Batch, Ours, Plain, idle_cpu, suspend, turn
from seedbed.v1 import engine_pb2

__all__ = ["add_arguments", "run"]

SIGMA = 0.005
RATIOS = {
    "mixed16_over_plain": ("mixed16", "plain", "16 distinct members over plain SGLang, without our plugin"),
    "mixed16_over_slot0": ("mixed16", "slot0", "16 distinct members over the unperturbed model there"),
    "slot0_over_plain": (
        "slot0",
        "plain",
        "the unperturbed model in our engine over plain SGLang",
    ),
    "mixed16_over_multilora": (
        "mixed16",
        "multilora",
        "the same over SGLang with 16 LoRA adapters of rank 1",
    ),
    "mixed16_over_plain_batched": (
        "mixed16",
        "plain_batched",
        "the same over plain SGLang with our attention",
    ),
}
NOTES = {
    **{name: text for name, (_, _, text) in RATIOS.items()},
    "update_over_copy": "seconds of an update with 16 members over reading and writing all weights once",
    "digest_over_copy": "seconds of the digest over the same",
    "slots_over_weights": "memory of 16 slots over memory of the weights",
    "update_seconds": "the pass over the weights",
    "update_pause_seconds": "all the time in which nothing is generated",
    "prepare16_seconds": "making the factors of 16 seeds that have no slot",
    "slot0_tokens_as_plain": "share of greedy answers that are those of plain SGLang",
}
Drive = Callable[[list[list[int]]], Awaitable[Batch]]


@dataclass(frozen=True)
class _Lane:
    """One row of the comparison: a way to drive one of the processes."""

    name: str
    side: Plain | Ours
    drive: Drive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="smollm2", help="name, local folder or hub id (default: smollm2)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=9, help="turns of every side (default: 9)")
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=0, help="OpenMP threads of a side (default: all)")
    parser.add_argument("--logs", type=Path, help="folder for the logs (default: a temporary one)")
    parser.add_argument(
        "--skip", action="append", default=[], choices=["plain_batched", "multilora"], help="leave a side out"
    )


def run(arguments: argparse.Namespace, console: Console) -> Result:
    if arguments.rounds < 1 or arguments.new_tokens < 1 or arguments.prompt_tokens < 2:
        raise SystemExit(
            "bench engine: --rounds and --new-tokens must be 1 or more, --prompt-tokens 2 or more"
        )
    threads = arguments.threads or len(os.sched_getaffinity(0))
    # Before torch is imported here, too: the copy must run with as many threads as the update.
    os.environ.update(OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="passive", TOKENIZERS_PARALLELISM="false")
    try:
        return asyncio.run(_interruptible(_measure(arguments, threads, console)))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _interruptible(work: Coroutine[Any, Any, Result]) -> Result:
    """A signal cancels the work, so that it ends its processes; suspended ones would stay for ever."""
    task = asyncio.create_task(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task


async def _measure(arguments: argparse.Namespace, threads: int, console: Console) -> Result:
    import torch

    from bench.adapters import write_adapters
    from seedbed_server.models import resolve_model

    torch.set_num_threads(threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Path(resolve_model(arguments.model).path)
    facts = conditions(
        model=arguments.model,
        dtype=arguments.dtype,
        device=device,
        threads=threads,
        members=MEMBERS,
        sigma=SIGMA,
        rounds=arguments.rounds,
        prompt_tokens=arguments.prompt_tokens,
        new_tokens=arguments.new_tokens,
        max_running_requests=MEMBERS,
        max_total_tokens=16384,
        between_turns="the processes of all other sides are suspended (SIGSTOP)",
    )
    async with AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="seedbed-bench-")))
        logs = arguments.logs or scratch
        logs.mkdir(parents=True, exist_ok=True)
        names = write_adapters(model, scratch / "adapters", MEMBERS)
        sides = _sides(arguments, model, device, scratch / "adapters", logs)
        facts["idle_cores"] = {}
        for name, side in sides.items():
            console.print(f"starting {name} ...")
            started = time.perf_counter()
            stack.push_async_callback(side.stop)
            await side.start()
            facts["idle_cores"][name] = round(await asyncio.to_thread(idle_cpu, side), 3)
            suspend(side)
            console.print(
                f"  {time.perf_counter() - started:.0f} s, idle at {facts['idle_cores'][name]} cores"
            )
        lanes = _lanes(sides, arguments.new_tokens, names)
        rates, tokens = await _rounds(lanes, model, arguments, console)
        ours = sides["ours"]
        assert isinstance(ours, Ours)
        samples, cost_metrics = await costs(ours, model, arguments, console)
    facts["load_after"] = [round(x, 2) for x in os.getloadavg()]
    metrics = {
        name: median_ratio(rates[over], rates[under])
        for name, (over, under, _) in RATIOS.items()
        if over in rates and under in rates
    }
    metrics |= {f"{name}_tokens_per_second": statistics.median(values) for name, values in rates.items()}
    metrics |= cost_metrics
    metrics["slot0_tokens_as_plain"] = _equal(tokens["slot0"], tokens["plain"])
    for changed, bare in (("mixed16", "slot0"), ("multilora", "plain")):
        if changed in tokens and _equal(tokens[changed], tokens[bare]) > 0.9:
            raise RuntimeError(f"{changed} answers as {bare} does, so what it adds was not measured")
    return Result("engine", facts, metrics, {"tokens_per_second": rates, **samples}, NOTES)


def _sides(
    arguments: argparse.Namespace, model: Path, device: str, adapters: Path, logs: Path
) -> dict[str, Plain | Ours]:
    """The processes, the same settings for all."""
    threads = {name: os.environ[name] for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY")}
    common = ["--model", str(model), "--dtype", arguments.dtype, "--device", device]
    own = ["--attention", "torch_native"] if device == "cpu" else []
    sides: dict[str, Plain | Ours] = {
        "plain": Plain([*common, *own], threads, logs / "plain.log"),
        "ours": Ours(
            threads,
            logs / "ours.log",
            model_path=str(model),
            model_name="bench",
            device=device,
            dtype=arguments.dtype,
            slots=MEMBERS,
            max_running_requests=MEMBERS,
            max_total_tokens=16384,
            orphan_seconds=0.0,
            log_level="error",
        ),
    }
    if "multilora" not in arguments.skip:
        sides["multilora"] = Plain(
            [*common, *own, "--adapters", str(adapters)], threads, logs / "multilora.log"
        )
    if device == "cpu" and "plain_batched" not in arguments.skip:
        from seedbed_server.engine.attention import BACKEND

        options = [*common, "--attention", BACKEND]
        sides["plain_batched"] = Plain(options, threads, logs / "plain_batched.log")
    return sides


def _lanes(sides: dict[str, Plain | Ours], new_tokens: int, adapters: list[str]) -> list[_Lane]:
    plain, ours = sides["plain"], sides["ours"]
    assert isinstance(ours, Ours)
    # A mirrored half, as a population may have it; all 16 seeds are distinct.
    members = [
        engine_pb2.Address(seed=(i + 1) * 0x9E3779B97F4A7C15 % 2**64, sigma=SIGMA * (-1) ** i)
        for i in range(MEMBERS)
    ]
    # Neighbours in the list are measured one right after the other.
    lanes = [
        _Lane("plain", plain, lambda prompts: plain.generate(prompts, new_tokens)),
        _Lane("mixed16", ours, lambda prompts: ours.generate(prompts, new_tokens, members)),
        _Lane("slot0", ours, lambda prompts: ours.generate(prompts, new_tokens)),
    ]
    lora, batched = sides.get("multilora"), sides.get("plain_batched")
    if isinstance(lora, Plain):
        lanes.insert(
            2, _Lane("multilora", lora, lambda prompts: lora.generate(prompts, new_tokens, adapters))
        )
    if isinstance(batched, Plain):
        lanes.append(_Lane("plain_batched", batched, lambda prompts: batched.generate(prompts, new_tokens)))
    return lanes


def _prompts(number: int, length: int, vocabulary: int) -> list[list[int]]:
    """16 prompts that no prefix cache has seen; the same ones for every side of a round."""
    rng = random.Random(number)
    return [[rng.randrange(3, vocabulary) for _ in range(length)] for _ in range(MEMBERS)]


async def _rounds(
    lanes: list[_Lane], model: Path, arguments: argparse.Namespace, console: Console
) -> tuple[dict[str, list[float]], dict[str, list[tuple[int, ...]]]]:
    """Tokens per second of each lane in each round, and the tokens themselves. Round 0 warms up."""
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    rates: dict[str, list[float]] = {lane.name: [] for lane in lanes}
    tokens: dict[str, list[tuple[int, ...]]] = {lane.name: [] for lane in lanes}
    for number in range(arguments.rounds + 1):
        prompts = _prompts(number, arguments.prompt_tokens, vocabulary)
        line = []
        for lane in lanes if number % 2 else reversed(lanes):
            with turn(lane.side):
                batch = await lane.drive(prompts)
            wrong = [len(ids) for ids in batch.tokens if len(ids) != arguments.new_tokens]
            if wrong:
                raise RuntimeError(
                    f"{lane.name}: an answer has {wrong[0]} tokens, not {arguments.new_tokens}"
                )
            line.append(f"{lane.name} {batch.rate:.1f}")
            if number:
                rates[lane.name].append(batch.rate)
                tokens[lane.name].extend(batch.tokens)
        label = f"round {number}/{arguments.rounds}" if number else "warm-up"
        console.print(f"{label}: tokens/s " + ", ".join(sorted(line)))
    return rates, tokens


def _equal(first: list[tuple[int, ...]], second: list[tuple[int, ...]]) -> float:
    return statistics.mean(a == b for a, b in zip(first, second, strict=True))
