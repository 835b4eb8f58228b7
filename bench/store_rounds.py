"""Clients of a server that open episodes and post their rewards, and measure."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import psutil
from rich.console import Console

__all__ = ["BATCH", "SINGLE_POSTS", "TIMED_OPENS", "Found", "rounds"]

BATCH, TASKS = 64, 64
TIMED_OPENS = 256
SINGLE_POSTS = 1024
SECONDS = 120.0


@dataclass
class Found:
    """The rounds of one store, in their order."""

    batches: list[float] = field(default_factory=list)
    """Rewards a second."""
    singles: list[float] = field(default_factory=list)
    opens: list[float] = field(default_factory=list)
    """Episodes a second."""
    alone: list[float] = field(default_factory=list)
    """Seconds of opening one in an empty store."""
    beside: list[float] = field(default_factory=list)
    """Seconds of opening one beside all others of its round."""
    memory: list[tuple[int, float]] = field(default_factory=list)
    """Rewards so far, and MiB."""


async def rounds(
    url: str, gateway: psutil.Process, rewards: int, size: int, connections: int, console: Console
) -> Found:
    """As many rounds of `size` rewards as make `rewards` or more. Raises RuntimeError for any other answer
    than `accepted`.

    Args:
        gateway: the process behind the URL.
        size: what one population takes.
    """
    found = Found()
    rng = random.Random(0)
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(url, connector=connector, timeout=timeout) as session:
        for number in range(-(-rewards // size)):
            episodes = await _opened(session, found, size, connections, first=not number)
            posts = [
                {"episode_id": name, "reward": rng.random(), "reward_id": f"{number}-{place}"}
                for place, name in enumerate(episodes)
            ]
            version = (await _status(session))["version"]
            alone, together = posts[:SINGLE_POSTS], posts[SINGLE_POSTS:]
            rate = await _spread(alone, connections, lambda post: _post(session, post))
            found.singles.append(rate)
            batches = [together[start : start + BATCH] for start in range(0, len(together), BATCH)]
            rate = await _spread(batches, connections, lambda batch: _post_all(session, batch))
            found.batches.append(rate * len(together) / len(batches))
            await _until_version(session, version + 1)
            found.memory.append(((number + 1) * size, gateway.memory_info().rss / 2**20))
            console.print(
                f"{(number + 1) * size:,} rewards: {found.batches[-1]:,.0f} a second, alone "
                f"{found.singles[-1]:,.0f}; {found.opens[-1]:,.0f} episodes a second; "
                f"{found.memory[-1][1]:.1f} MiB"
            )
    return found


async def _opened(
    session: aiohttp.ClientSession, found: Found, size: int, connections: int, *, first: bool
) -> list[str]:
    """The ids of the episodes of one round."""
    names: list[str] = []

    async def open_one(place: int) -> None:
        body = {"group": f"task {place % TASKS}"}
        async with session.post("/v1/episodes", json=body) as answer:
            if answer.status != 201:
                raise RuntimeError(f"no episode: {answer.status} {await answer.text()}")
            names.append((await answer.json())["id"])

    async def timed(count: int, seconds: list[float]) -> None:
        for _ in range(count):
            started = time.perf_counter()
            await open_one(len(names))
            seconds.append(time.perf_counter() - started)

    if first:
        await timed(TIMED_OPENS, found.alone)
    many = range(len(names), size - TIMED_OPENS)
    found.opens.append(await _spread(many, 4 * connections, open_one))
    await timed(TIMED_OPENS, found.beside)
    return names


async def _spread(work: Sequence[Any], clients: int, one: Callable[[Any], Awaitable[None]]) -> float:
    """Does all of it, so many at a time. Returns how many were done in a second."""
    left = iter(work)

    async def client() -> None:
        for item in left:
            await one(item)

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return len(work) / (time.perf_counter() - started)


async def _post(session: aiohttp.ClientSession, post: dict[str, Any]) -> None:
    async with session.post("/v1/feedback", json=post) as answer:
        _check(answer.status, [await answer.json()])


async def _post_all(session: aiohttp.ClientSession, posts: list[dict[str, Any]]) -> None:
    async with session.post("/v1/feedback/batch", json={"rewards": posts}) as answer:
        content = await answer.json()
        _check(answer.status, content.get("data", [content]))


def _check(status: int, answers: list[dict[str, Any]]) -> None:
    """Raises RuntimeError unless all of them count."""
    for answer in answers:
        if status != 200 or answer["result"] != "accepted":
            raise RuntimeError(f"a reward was not accepted: {status} {answer}")


async def _status(session: aiohttp.ClientSession) -> dict[str, Any]:
    async with session.get("/v1/status") as answer:
        content: dict[str, Any] = await answer.json()
        return content


async def _until_version(session: aiohttp.ClientSession, version: int) -> None:
    deadline = time.monotonic() + SECONDS
    while (status := await _status(session))["version"] < version:
        if time.monotonic() > deadline:
            raise RuntimeError(f"no version {version} within {SECONDS:g} s: {status}")
        await asyncio.sleep(0.1)
