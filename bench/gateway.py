"""What the gateway adds: latency and throughput beside SGLang's own HTTP server, on the same model.

Both servers run at the same time and idle while it is not their turn. One round drives every lane with the
same prompts, one lane after another, in an order that is turned round every time: SGLang's server, ours with
the unperturbed model (so that only the gateway differs), and ours with members. Latency is measured with a
toy model, which cannot hide it; throughput of streams with SmolLM2.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from rich.console import Console

from bench.harness import Result, conditions, median_ratio
from bench.http_load import Timing, load
from bench.processes import idle_cpu

__all__ = ["add_arguments", "run"]

CLIENTS = (1, 16)
NAME = "bench"
LANES = {"sglang": NAME, "live": f"{NAME}:live", "members": NAME}
START_SECONDS = 600.0
WORDS = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "red", "green", "blue", "warm", "cold", "old", "new", "big", "small",
)  # fmt: skip
NOTES = {
    "ttft_added_ms_p50": "added to the first token, unperturbed model; the worse of 1 and 16 clients",
    "total_added_ms_p50": "added to a whole answer that is not streamed; the worse of 1 and 16 clients",
    "stream16_over_sglang": "tokens per second of 16 streams of SmolLM2, unperturbed, over SGLang's server",
    "stream16_members_over_sglang": "the same with 16 members at once",
}


@dataclass(frozen=True)
class _Server:
    """A running server."""

    url: str
    pid: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="smollm2", help="for the streams (default: smollm2)")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each lane on the toy (default: 15)")
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
    if arguments.rounds < 1 or arguments.stream_rounds < 0 or arguments.new_tokens < 2:
        raise SystemExit("bench gateway: --rounds must be 1 or more, --stream-rounds 0, --new-tokens 2")
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
        clients=list(CLIENTS),
    )
    metrics: dict[str, float] = {}
    samples: dict[str, Any] = {}
    facts["idle_cores"] = {}
    with tempfile.TemporaryDirectory(prefix="seedbed-bench-") as place:
        logs = arguments.logs or Path(place)
        logs.mkdir(parents=True, exist_ok=True)
        toy = make_toy("llama", Path(place, "toy"), facts["dtype"])
        models = [("latency", toy)]
        if arguments.stream_rounds:
            models.append(("streams", Path(resolve_model(arguments.model).path)))
        for part, model in models:
            async with AsyncExitStack() as stack:
                servers = {}
                for name in ("sglang", "ours"):
                    started = time.perf_counter()
                    console.print(f"{part}: starting {name} ...")
                    command = _command(name, model, facts["dtype"], device, attention, Path(place, part))
                    servers[name] = await stack.enter_async_context(
                        _serving(command, logs / f"{part}-{name}.log")
                    )
                    console.print(f"  {time.perf_counter() - started:.0f} s")
                facts["idle_cores"][part] = {
                    name: round(await asyncio.to_thread(idle_cpu, server), 3)
                    for name, server in servers.items()
                }
                measure = _latency if part == "latency" else _streams
                found, raw = await measure(servers, arguments, console)
                metrics |= found
                samples[part] = raw
    facts["load_after"] = [round(x, 2) for x in os.getloadavg()]
    return Result("gateway", facts, metrics, samples, NOTES)


# -- servers -----------------------------------------------------------------------------------------


def _command(name: str, model: Path, dtype: str, device: str, attention: str, folder: Path) -> list[str]:
    """Both with the same settings, wherever they do not belong to one of them."""
    common = {"model": model, "dtype": dtype, "device": device, "max-total-tokens": 16384}
    if name == "sglang":
        own: dict[str, Any] = {"name": NAME, "requests": 16, "attention": attention}
        program = ["-m", "bench.sglang_server"]
    else:
        folder.mkdir(parents=True, exist_ok=True)
        own = {
            "served-name": NAME, "store": folder / "store.sqlite", "population-size": 16,
            "episodes-per-member": 1_000_000, "slots": 16, "max-running-requests": 16, "log-level": "error",
        }  # fmt: skip
        program = ["-c", "from seedbed_server.launch import main; main()", "serve"]
    return [sys.executable, *program, *(f"--{key}={value}" for key, value in (common | own).items())]


@contextlib.asynccontextmanager
async def _serving(command: list[str], log: Path) -> Any:
    """The server of a command on a free port, from its first answer on; ended afterwards."""
    port = _free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SEEDBED_")}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, f"--port={port}", stdout=output, stderr=output, env=environment, start_new_session=True
        )
    server = _Server(f"http://127.0.0.1:{port}", process.pid)
    try:
        await _until_ready(server, process, log, ours="serve" in command)
        yield server
    finally:
        tree = psutil.Process(process.pid).children(recursive=True) if process.returncode is None else []
        if process.returncode is None:
            process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 30)
        for left in (*tree, *([psutil.Process(process.pid)] if process.returncode is None else [])):
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()


async def _until_ready(server: _Server, process: Any, log: Path, *, ours: bool) -> None:
    """Raises RuntimeError when it ends or takes too long, or when our plugin is in SGLang's server."""
    deadline = time.monotonic() + START_SECONDS
    while not await _is_ready(server, log, ours=ours):
        if process.returncode is not None or time.monotonic() > deadline:
            end = log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{server.url} did not come up; the end of its log:\n{end}")
        await asyncio.sleep(0.5)


async def _is_ready(server: _Server, log: Path, *, ours: bool) -> bool:
    if not ours:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith('{"ready"')]
        if lines and (hooks := json.loads(lines[-1])["hooks"]):
            raise RuntimeError(f"SGLang's server is not plain: {hooks[0]} is hooked")
        return bool(lines)
    timeout = aiohttp.ClientTimeout(total=5)
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        async with aiohttp.request("GET", f"{server.url}/readyz", timeout=timeout) as answer:
            return answer.status == 200
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# -- rounds ------------------------------------------------------------------------------------------


def _prompts(number: int, clients: int, each: int) -> list[list[str]]:
    """Prompts that no prefix cache has seen; the same ones for every lane of a round."""
    rng = random.Random(f"{number} {clients}")
    return [[" ".join(rng.choices(WORDS, k=12)) for _ in range(each)] for _ in range(clients)]


async def _round(
    servers: dict[str, _Server], number: int, clients: int, each: int, new_tokens: int, *, stream: bool
) -> dict[str, tuple[float, list[Timing]]]:
    prompts = _prompts(number * 2 + stream, clients, each)
    found = {}
    for lane in LANES if number % 2 else reversed(LANES):
        server = servers["sglang" if lane == "sglang" else "ours"]
        found[lane] = await load(server.url, LANES[lane], prompts, new_tokens=new_tokens, stream=stream)
    return found


async def _latency(
    servers: dict[str, _Server], arguments: argparse.Namespace, console: Console
) -> tuple[dict[str, float], dict[str, Any]]:
    """Milliseconds that are added, medians of the rounds' differences of medians. Round 0 warms up."""
    added: dict[str, list[float]] = {}
    whole: dict[str, list[float]] = {}
    for number in range(arguments.rounds + 1):
        line = []
        for clients in CLIENTS:
            each = 8 if clients == 1 else 2
            for stream in (True, False):
                found = await _round(servers, number, clients, each, arguments.new_tokens, stream=stream)
                middles = {lane: _middle(timings, stream=stream) for lane, (_, timings) in found.items()}
                if not number:
                    continue
                for lane, kinds in middles.items():
                    for kind, value in kinds.items():
                        whole.setdefault(f"{lane}_{kind}_ms_{clients}", []).append(value)
                        if lane != "sglang":
                            name = f"{lane}_{kind}_added_ms_{clients}"
                            added.setdefault(name, []).append(value - middles["sglang"][kind])
                line.append(f"{clients}: " + ", ".join(f"{k} {v:.1f}" for k, v in middles["live"].items()))
        console.print(f"round {number}: {'; '.join(line) or 'warm'}")
    metrics = {}
    for kind, name in (("ttft", "ttft_added_ms_p50"), ("total", "total_added_ms_p50")):
        metrics[name] = max(statistics.median(added[f"live_{kind}_added_ms_{n}"]) for n in CLIENTS)
    metrics |= {f"{name}_p50": statistics.median(values) for name, values in (added | whole).items()}
    return metrics, {**added, **whole}


def _middle(timings: Sequence[Timing], *, stream: bool) -> dict[str, float]:
    """Median milliseconds of a turn."""
    total = 1e3 * statistics.median(t.total for t in timings)
    if not stream:
        return {"total": total}
    return {"ttft": 1e3 * statistics.median(t.first for t in timings), "stream_total": total}


async def _streams(
    servers: dict[str, _Server], arguments: argparse.Namespace, console: Console
) -> tuple[dict[str, float], dict[str, Any]]:
    """Tokens per second of 16 streams at once, in each lane and round."""
    rates: dict[str, list[float]] = {lane: [] for lane in LANES}
    for number in range(arguments.stream_rounds + 1):
        found = await _round(servers, number, 16, 1, arguments.new_tokens, stream=True)
        line = []
        for lane, (seconds, timings) in found.items():
            rate = sum(t.tokens for t in timings) / seconds
            line.append(f"{lane} {rate:.0f}")
            if number:
                rates[lane].append(rate)
        console.print(f"round {number}: {', '.join(line)} tokens per second")
    metrics = {
        "stream16_over_sglang": median_ratio(rates["live"], rates["sglang"]),
        "stream16_members_over_sglang": median_ratio(rates["members"], rates["sglang"]),
    }
    metrics |= {f"stream16_{lane}_tokens_per_second": statistics.median(v) for lane, v in rates.items()}
    return metrics, {"tokens_per_second": rates}
