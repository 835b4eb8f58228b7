"""The lanes of `bench gateway`: ways to a model that are driven with the same words, one after another."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench import servers
from bench.http_load import EngineLane, HttpLane, Lane, Timing, load
from bench.processes import used_cpu

__all__ = ["LANES", "Sides", "lanes_of"]

LANES = ("sglang", "proxy", "engine", "live", "members")
WORDS = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "red", "green", "blue", "warm", "cold", "old", "new", "big", "small",
)  # fmt: skip


class Sides:
    """Lanes, and which processes work for each."""

    def __init__(self, running: dict[str, servers.Server], lanes: dict[str, Lane]) -> None:
        self.lanes = lanes
        below = {"sglang": ("sglang",), "proxy": ("sglang", "proxy")}
        self._pids = {lane: [running[name] for name in below.get(lane, ("ours",))] for lane in lanes}

    def cpu(self, lane: str) -> float:
        """Seconds of CPU that the processes of a lane have used so far."""
        return sum(used_cpu(server) for server in self._pids[lane])

    async def round(
        self, number: int, clients: int, each: int, new_tokens: int, *, stream: bool
    ) -> dict[str, tuple[float, list[Timing], float]]:
        """For each lane seconds, completions, and seconds of CPU for each of them."""
        found = {}
        for name in self.lanes if number % 2 else reversed(self.lanes):
            prompts = _prompts(number * 2 + stream, clients, each, name)
            before = self.cpu(name)
            seconds, timings = await load(self.lanes[name], prompts, new_tokens=new_tokens, stream=stream)
            found[name] = (seconds, timings, (self.cpu(name) - before) / len(timings))
        return found


@asynccontextmanager
async def lanes_of(running: dict[str, servers.Server]) -> AsyncIterator[dict[str, Lane]]:
    ours = running["ours"]
    lanes: dict[str, Lane] = {
        "sglang": HttpLane(running["sglang"].url, servers.NAME),
        "proxy": HttpLane(running["proxy"].url, servers.NAME),
        "engine": EngineLane(servers.engine_address(ours), servers.NAME),
        "live": HttpLane(ours.url, f"{servers.NAME}:live"),
        "members": HttpLane(ours.url, servers.NAME),
    }
    try:
        yield lanes
    finally:
        for lane in lanes.values():
            await lane.close()


def _prompts(number: int, clients: int, each: int, lane: str) -> list[list[str]]:
    """The same words for every lane of a round, in an order that no prefix cache has seen: lanes share
    engines.
    """
    rng, order = random.Random(f"{number} {clients}"), random.Random(f"{number} {clients} {lane}")

    def prompt() -> str:
        words = rng.choices(WORDS, k=12)
        order.shuffle(words)
        return " ".join(words)

    return [[prompt() for _ in range(each)] for _ in range(clients)]
