"""Many episodes at once, turn by turn in random order, with retries and clients that hang up.

The facts are all completions that were received: messages, tokens with their log-probabilities, and what the
server said about whose they are. What is in them was read from the wire, not from objects of the SDK.
"""

import asyncio
import json
import random
from typing import Any

from kit import World, case, main
from wire import Exchange

LINES = (
    "Which planet is the largest one?", "How many legs does a spider have?", "Please count to three.",
    "What did the gardener write down?", "Say it in other words.", "And what is the capital of France?",
    "Why?", "Nothing of this needs a theory of plants.", "One, two, three, four, five, six.",
)  # fmt: skip


@case
async def crowd(w: World) -> Any:
    """`options`: episodes, turns, tokens, at_once, seed."""
    o = w.setting.options
    # One record for each connection: faults must hit the request that they were drawn for.
    worlds = [World(w.setting, asynchronous=True) for _ in range(o["at_once"])]
    free: asyncio.Queue[World] = asyncio.Queue()
    for world in worlds:
        free.put_nowait(world)
    rng = random.Random(o["seed"])
    seeds = [rng.randrange(2**32) for _ in range(o["episodes"])]

    async def one(number: int) -> list[dict[str, Any]]:
        """An episode gives its connection back after every turn, so that turns of all of them interleave."""
        own = random.Random(seeds[number])
        messages: list[dict[str, str]] = []
        episode: dict[str, Any] = {}
        turns = []
        for turn in range(o["turns"]):
            world = await free.get()
            try:
                if not turn:
                    episode = await _open(world, own)
                messages = [*messages, {"role": "user", "content": own.choice(LINES)}]
                turns.append(await _ask(world, own, episode, messages, o["tokens"]))
                messages = [*messages, {"role": "assistant", "content": turns[-1]["text"]}]
            finally:
                free.put_nowait(world)
            await asyncio.sleep(own.random() * 0.2)
        return turns

    episodes = await asyncio.gather(*(one(number) for number in range(o["episodes"])))
    for world in worlds:
        await world.close()
        w.record.exchanges += world.record.exchanges
    return {"episodes": episodes}


async def _open(w: World, rng: random.Random) -> dict[str, Any]:
    """By a session key, a base URL, a header, or by nothing at all."""
    way = rng.choice(["key", "url", "header", "body", "implicit"])
    if way == "implicit":
        return {"way": way, "key": f"agent-{rng.randrange(2**40)}"}
    return {"way": way, **await w.episode()}


async def _ask(
    w: World, rng: random.Random, episode: dict[str, Any], messages: list[Any], tokens: int
) -> dict[str, Any]:
    way = episode["way"]
    # Special tokens are shown as well: a streamed token without any text would have no event of its own.
    options: dict[str, Any] = {
        "model": w.model, "messages": messages, "max_tokens": tokens, "temperature": 1.0, "logprobs": True,
        "extra_body": {"ignore_eos": True, "skip_special_tokens": False}, "stream": rng.random() < 0.5,
    }  # fmt: skip
    if way == "header":
        options["extra_headers"] = {"X-Seedbed-Episode": episode["id"]}
    if way == "body":
        options["extra_body"] |= {"seedbed": {"episode_id": episode["id"]}}
    client = w.client(
        key=episode["api_key"] if way == "key" else episode["key"] if way == "implicit" else "none",
        base_url=episode["base_url"] if way == "url" else "",
        retries=3,
    )
    hangs_up = options["stream"] and rng.random() < 0.15
    if hangs_up:
        stream = await client.chat.completions.create(**options)
        async for _ in stream:
            break
        await stream.close()
    fault = rng.choice(["", "", "", "refuse", "lose", "hang up"])
    if fault:
        w.record.faults.append(fault)
    result = await client.chat.completions.create(**options)
    if options["stream"]:
        async for _ in result:
            pass
    await client.close()
    return {
        "way": way,
        "fault": fault,
        "hung_up": hangs_up,
        "messages": messages,
        **_heard(w.record.exchanges[-1]),
    }


def _heard(exchange: Exchange) -> dict[str, Any]:
    """What one answer says, streamed or not."""
    body = bytes(exchange.body).decode()
    if exchange.asked["stream"]:
        parts = [json.loads(line[5:]) for line in body.split("\n") if line.startswith("data: {")]
    else:
        parts = [json.loads(body)]
    tokens: list[Any] = []
    text, prompt_tokens = "", None
    for part in parts:
        for choice in part["choices"]:
            piece = choice.get("message") or choice.get("delta")
            text += piece.get("content") or ""
            tokens += [
                [t["token"], t["logprob"]] for t in (choice.get("logprobs") or {}).get("content") or []
            ]
        if part.get("usage"):
            prompt_tokens = part["usage"]["prompt_tokens"]
    return {
        "completion": parts[0]["id"],
        "seedbed": parts[-1]["seedbed"],
        "header": exchange.completion,
        "retry": exchange.retry,
        "mark": exchange.headers.get("x-seedbed-retry"),
        "text": text,
        "tokens": tokens,
        "prompt_tokens": prompt_tokens,
    }


if __name__ == "__main__":
    main()
