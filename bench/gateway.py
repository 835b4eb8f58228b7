"""What the gateway adds: latency and throughput beside SGLang's own HTTP server, on the same model.

All servers run at the same time and idle while it is not their turn. One round drives every lane with the
same prompts, one lane after another, in an order that is turned round every time: SGLang's server, ours with
the unperturbed model (so that only the gateway differs), and ours with members. Two more lanes say where the
time goes: our engine without the gateway, and a proxy before SGLang's server that only passes bytes on, which
is what any process in between would cost. Latency is measured with a toy model, which cannot hide it;
throughput of streams with SmolLM2.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import servers
from bench.gateway_lanes import LANES, Sides, lanes_of
from bench.harness import Result, conditions, median_ratio
from bench.http_load import Timing
from bench.processes import idle_cpu

__all__ = ["add_arguments", "run"]

CLIENTS = (1, 16)
EACH = {1: 8, 16: 4}
"""Completions of a client in a turn."""
ADDED = ("proxy", "engine", "live", "members")
NOTES = {
    "ttft_added_ms_p50": "added to the first token, unperturbed model; the worse of 1 and 16 clients",
    "total_added_ms_p50": "added to a whole answer that is not streamed; the worse of 1 and 16 clients",
    "stream16_over_sglang": "tokens per second of 16 streams of SmolLM2, unperturbed, over SGLang's server",
    "stream16_members_over_sglang": "the same with 16 members at once",
    "live_ttft_added_ms_16_p10": "difference of the fastest tenths: what a machine that is busy still shows",
    "proxy_ttft_added_ms_16_p50": "what a proxy adds that only passes bytes on",
    "engine_ttft_added_ms_16_p50": "what our engine adds without the gateway",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="smollm2", help="for the streams (default: smollm2)")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each lane on the toy (default: 10)")
    parser.add_argument(
        "--stream-rounds", type=int, default=5, help="turns on the model; 0: none (default: 5)"
    )
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument(
        "--attention",
        default="ours",
        help="of SGLang's server on a CPU: ours, so that only the gateway differs, or torch_native",
    )
    parser.add_argument("--logs", type=Path, help="folder for the logs (default: a temporary one)")


def run(arguments: argparse.Namespace, console: Console) -> Result:
    if arguments.rounds < 0 or arguments.stream_rounds < 0 or arguments.new_tokens < 2:
        raise SystemExit("bench gateway: --rounds and --stream-rounds must be 0 or more, --new-tokens 2")
    os.environ.update(OMP_WAIT_POLICY="passive", TOKENIZERS_PARALLELISM="false")
    return asyncio.run(_measure(arguments, console))


async def _measure(arguments: argparse.Namespace, console: Console) -> Result:
    import torch

    from seedbed_server.engine.attention import BACKEND
    from seedbed_server.models import resolve_model
    from tests.toys import make_toy

    device = "cuda" if torch.cuda.is_available() else "cpu"
    attention = "" if device == "cuda" else BACKEND if arguments.attention == "ours" else arguments.attention
    facts = conditions(
        model=arguments.model,
        toy="llama, 2 layers, hidden 64",
        device=device,
        dtype="float32" if device == "cpu" else "bfloat16",
        attention_of_sglang=attention or "default",
        rounds=arguments.rounds,
        stream_rounds=arguments.stream_rounds,
        new_tokens=arguments.new_tokens,
        clients={str(clients): f"{each} completions each a turn" for clients, each in EACH.items()},
        lanes=list(LANES),
        idle_cores={},
    )
    metrics: dict[str, float] = {}
    samples: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="seedbed-bench-") as place:
        logs = arguments.logs or Path(place)
        logs.mkdir(parents=True, exist_ok=True)
        parts = []
        if arguments.rounds:
            parts.append(("latency", make_toy("llama", Path(place, "toy"), facts["dtype"]), _latency))
        if arguments.stream_rounds:
            parts.append(("streams", Path(resolve_model(arguments.model).path), _streams))
        for part, model, measure in parts:
            async with AsyncExitStack() as stack:
                running = {}
                for name, command in {
                    "sglang": servers.sglang_command(model, facts["dtype"], device, attention),
                    "ours": servers.our_command(model, facts["dtype"], device, Path(place, part)),
                }.items():
                    started = time.perf_counter()
                    running[name] = await stack.enter_async_context(
                        servers.serving(command, logs / f"{part}-{name}.log")
                    )
                    console.print(f"{part}: {name} started in {time.perf_counter() - started:.0f} s")
                proxy = servers.proxy_command(running["sglang"].url)
                running["proxy"] = await stack.enter_async_context(
                    servers.serving(proxy, logs / f"{part}-proxy.log")
                )
                facts["idle_cores"][part] = {
                    name: round(await asyncio.to_thread(idle_cpu, server), 3)
                    for name, server in running.items()
                }
                lanes = await stack.enter_async_context(lanes_of(running))
                found, raw = await measure(Sides(running, lanes), arguments, console)
                metrics |= found
                samples[part] = raw
    facts["load_after"] = [round(x, 2) for x in os.getloadavg()]
    return Result("gateway", facts, metrics, samples, NOTES)


async def _latency(
    sides: Sides, arguments: argparse.Namespace, console: Console
) -> tuple[dict[str, float], dict[str, Any]]:
    """Milliseconds that are added, medians of the rounds' differences of medians. Round 0 warms up."""
    samples: dict[str, list[float]] = {}
    single: dict[str, list[float]] = {}
    for number in range(arguments.rounds + 1):
        line = []
        for clients, each in EACH.items():
            for stream in (True, False):
                found = await sides.round(number, clients, each, arguments.new_tokens, stream=stream)
                if not number:
                    continue
                values = {
                    lane: _middles(timings, cpu, stream=stream) for lane, (_, timings, cpu) in found.items()
                }
                for lane, (_, timings, _cpu) in found.items():
                    taken = [1e3 * (t.first if stream else t.total) for t in timings]
                    kind = "ttft_ms" if stream else "total_ms"
                    single.setdefault(f"{lane}_{kind}_{clients}", []).extend(taken)
                for lane, kinds in values.items():
                    for kind, value in kinds.items():
                        samples.setdefault(f"{lane}_{kind}_{clients}", []).append(value)
                        if lane in ADDED:
                            added = kind.removesuffix("_ms") + "_added_ms"
                            difference = value - values["sglang"][kind]
                            samples.setdefault(f"{lane}_{added}_{clients}", []).append(difference)
                kind = "ttft_ms" if stream else "total_ms"
                line.append(
                    f"{clients} {kind} " + ", ".join(f"{lane} {v[kind]:.1f}" for lane, v in values.items())
                )
        console.print(f"round {number}: {'; '.join(line) or 'warm'}")
    metrics = {}
    for kind in ("ttft", "total"):
        metrics[f"{kind}_added_ms_p50"] = max(
            statistics.median(samples[f"live_{kind}_added_ms_{clients}"]) for clients in CLIENTS
        )
    metrics |= {f"{name}_p50": statistics.median(values) for name, values in samples.items()}
    metrics |= _quiet(single)
    return metrics, samples


def _quiet(single: dict[str, list[float]]) -> dict[str, float]:
    """The lanes' fastest tenths beside SGLang's: what is added while nothing else wants the machine."""
    fast = {name: statistics.quantiles(values, n=10)[0] for name, values in single.items()}
    found = {}
    for clients in CLIENTS:
        for kind in ("ttft", "total"):
            for lane in ADDED:
                name = f"{kind}_ms_{clients}"
                found[f"{lane}_{kind}_added_ms_{clients}_p10"] = (
                    fast[f"{lane}_{name}"] - fast[f"sglang_{name}"]
                )
    return found


def _middles(timings: Sequence[Timing], cpu: float, *, stream: bool) -> dict[str, float]:
    """Median milliseconds of a turn, and milliseconds of CPU of a completion."""
    total = 1e3 * statistics.median(t.total for t in timings)
    if not stream:
        return {"total_ms": total, "cpu_ms": 1e3 * cpu}
    first = 1e3 * statistics.median(t.first for t in timings)
    return {"ttft_ms": first, "stream_total_ms": total, "stream_cpu_ms": 1e3 * cpu}


async def _streams(
    sides: Sides, arguments: argparse.Namespace, console: Console
) -> tuple[dict[str, float], dict[str, Any]]:
    """Tokens per second of 16 streams at once, in each lane and round."""
    rates: dict[str, list[float]] = {lane: [] for lane in sides.lanes}
    for number in range(arguments.stream_rounds + 1):
        found = await sides.round(number, 16, 1, arguments.new_tokens, stream=True)
        line = []
        for lane, (seconds, timings, _) in found.items():
            rate = sum(t.tokens for t in timings) / seconds
            line.append(f"{lane} {rate:.0f}")
            if number:
                rates[lane].append(rate)
        console.print(f"round {number}: {', '.join(line)} tokens per second")
    metrics = {
        "stream16_over_sglang": median_ratio(rates["live"], rates["sglang"]),
        "stream16_members_over_sglang": median_ratio(rates["members"], rates["sglang"]),
        "stream16_proxy_over_sglang": median_ratio(rates["proxy"], rates["sglang"]),
        "stream16_engine_over_sglang": median_ratio(rates["engine"], rates["sglang"]),
    }
    metrics |= {f"stream16_{lane}_tokens_per_second": statistics.median(v) for lane, v in rates.items()}
    return metrics, {"tokens_per_second": rates}
