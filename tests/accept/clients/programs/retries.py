"""Answers that are lost, requests that are repeated, clients that go away."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import httpx2
from asking import at_home, chat, said
from kit import World, case


@case
async def losses(w: World) -> Any:
    """Answers that the network loses: the SDK asks again by itself, and nothing is counted twice."""
    facts: dict[str, Any] = {}
    episode = await w.episode()
    homes = {
        "episode": w.client(key=episode["api_key"], retries=2),
        "key": w.client(key="client-7", retries=2),
    }
    for name, client in homes.items():
        for fault in ("refuse", "lose", "hang up"):
            for stream in (False, True):
                before = len(w.record.exchanges)
                w.record.faults.append(fault)
                answer = await chat(
                    w, client, stream=stream, temperature=1.0, max_tokens=16,
                    messages=said(f"Case {name} {fault} {stream}: tell me a story."),
                )  # fmt: skip
                facts[f"{name}, {fault}, {'streamed' if stream else 'whole'}"] = {
                    "answer": answer["id"],
                    "text": answer["choices"][0]["text"],
                    "episode": answer["seedbed"]["episode_id"],
                    "requests": [
                        {
                            "retry": e.retry,
                            "completion": e.completion,
                            "episode": e.headers.get("x-seedbed-episode"),
                            "mark": e.headers.get("x-seedbed-retry"),
                            "body": bytes(e.body).decode(),
                        }
                        for e in w.record.exchanges[before:]
                    ],
                }
    facts["session"] = episode["id"]
    return facts


@case
async def repetitions(w: World) -> Any:
    """The same body while the first one runs: marked it joins, unmarked it is a fresh sample."""
    facts: dict[str, Any] = {}
    client = await at_home(w)
    marked = {"extra_headers": {"x-stainless-retry-count": "1"}}
    for stream in (False, True):
        options = {
            "model": w.model, "messages": said(f"Count to a hundred, {stream}."), "max_tokens": 24,
            "temperature": 1.0, "stream": stream, "extra_body": {"ignore_eos": True},
        }  # fmt: skip

        def first(options: dict[str, Any] = options) -> Any:
            return client.chat.completions.create(**options)

        def second(options: dict[str, Any] = options) -> Any:
            if w.asynchronous:
                return _later(lambda: client.chat.completions.create(**options, **marked))
            time.sleep(0.3)
            return client.chat.completions.create(**options, **marked)

        results = await w.together(first, second)
        if stream:
            read = await w.together(*(_reader(w, result) for result in results))
            seen = [{"id": id_, "text": text} for id_, text in read]
        else:
            seen = [{"id": r.id, "text": r.choices[0].message.content} for r in results]
        fresh = await w.get(client.chat.completions.create(**options))
        fresh_id = (await w.every(fresh))[0].id if stream else fresh.id
        facts["streamed" if stream else "whole"] = {
            "joined": seen,
            "fresh": fresh_id,
            "marks": [e.headers.get("x-seedbed-retry") for e in w.record.exchanges],
        }
    return facts


async def _later(call: Callable[[], Any]) -> Any:
    await asyncio.sleep(0.3)
    return await call()


def _reader(w: World, stream: Any) -> Callable[[], Any]:
    def blocking() -> tuple[str, str]:
        chunks = list(stream)
        return chunks[0].id, "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)

    async def awaiting() -> tuple[str, str]:
        chunks = [chunk async for chunk in stream]
        return chunks[0].id, "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)

    return awaiting if w.asynchronous else blocking


@case
async def hanging_up(w: World) -> Any:
    """A client that goes away in the middle, once from a stream and once while it waits."""
    client = w.client()
    story = {
        "model": w.model, "messages": said("Tell me a long story."), "max_tokens": 400,
        "extra_body": {"ignore_eos": True},
    }  # fmt: skip
    stream = await w.get(client.chat.completions.create(stream=True, **story))
    count = 0
    async for _ in w.each(stream):
        count += 1
        if count == 3:
            break
    await w.get(stream.close())
    closed_at = time.time()
    completion = w.record.exchanges[-1].completion
    free = await _until_idle(w)
    waiting = await w.raises(lambda: client.with_options(timeout=1.0).chat.completions.create(**story))
    return {
        "chunks": count,
        "completion": completion,
        "closed_at": closed_at,
        "free_after": free,
        "waiting": waiting,
        "gave_up_at": time.time(),
        "free_after_waiting": await _until_idle(w),
    }


async def _until_idle(w: World) -> float:
    """Seconds until no request is in flight, as the metrics say it."""
    begin = time.monotonic()
    async with httpx2.AsyncClient() as http:
        while "seedbed_requests_in_flight 0.0" not in (await http.get(f"{w.setting.url}/metrics")).text:
            if time.monotonic() > begin + 20:
                break
            await asyncio.sleep(0.02)
    return time.monotonic() - begin
