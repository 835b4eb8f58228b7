"""Clients of an OpenAI endpoint that take the time: plain HTTP, no SDK, no pauses."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp

__all__ = ["Timing", "load"]

_SECONDS = 300.0


@dataclass(frozen=True)
class Timing:
    """One completion.

    Attributes:
        first: seconds to the first token; for an answer that is not streamed, to its end.
        total: seconds to the end.
        tokens: new tokens.
    """

    first: float
    total: float
    tokens: int


async def load(
    url: str, model: str, prompts: Sequence[Sequence[str]], *, new_tokens: int, stream: bool
) -> tuple[float, list[Timing]]:
    """One client for each list of prompts, which it asks one after another.

    Returns the seconds from the start of all to the end of the last, and every completion.

    Raises RuntimeError for an answer that is not what was asked for.
    """
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    async with aiohttp.ClientSession(url, connector=connector, timeout=timeout) as session:

        async def client(own: Sequence[str]) -> list[Timing]:
            return [await _ask(session, model, prompt, new_tokens, stream=stream) for prompt in own]

        started = time.perf_counter()
        timings = await asyncio.gather(*(client(own) for own in prompts))
        return time.perf_counter() - started, [timing for own in timings for timing in own]


async def _ask(
    session: aiohttp.ClientSession, model: str, prompt: str, new_tokens: int, *, stream: bool
) -> Timing:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": new_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    first, usage = 0.0, None
    started = time.perf_counter()
    async with session.post("/v1/chat/completions", json=body) as response:
        if response.status != 200:
            raise RuntimeError(f"{session._base_url}: {response.status}: {(await response.text())[:500]}")
        if not stream:
            usage = (await response.json())["usage"]
        else:
            async for line in response.content:
                # Parsing every event would load the clients' core more than the server's.
                if not first and b'"content":"' in line.replace(b'": "', b'":"') and not _is_empty(line):
                    first = time.perf_counter() - started
                if line.startswith(b"data: {") and b'"usage":{' in line.replace(b'": {', b'":{'):
                    usage = json.loads(line[6:])["usage"]
    total = time.perf_counter() - started
    if usage is None or usage["completion_tokens"] != new_tokens:
        raise RuntimeError(f"{new_tokens} tokens were asked for, and the usage is {usage}")
    return Timing(first or total, total, usage["completion_tokens"])


def _is_empty(line: bytes) -> bool:
    """Whether an event is the one that only names the role."""
    return b'"content":""' in line.replace(b'": "', b'":"')
