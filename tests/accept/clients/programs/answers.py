"""What is served, and the ordinary fields of a chat completion. Most cases ask twice, streamed and not."""

from typing import Any

import openai
from asking import at_home, both, chat, said
from kit import World, case


@case
async def models(w: World) -> Any:
    client = w.client()
    listed = [model.model_dump() async for model in w.each(client.models.list())]
    return {
        "listed": listed,
        "one": (await w.get(client.models.retrieve(w.model))).model_dump(),
        "live": (await w.get(client.models.retrieve(f"{w.model}:live"))).model_dump(),
        "unknown": await w.raises(lambda: client.models.retrieve("gpt-9")),
    }


@case
async def plain(w: World) -> Any:
    facts = await both(w, await at_home(w), max_tokens=32)
    facts["headers"] = [
        {k: v for k, v in e.headers.items() if k.startswith("x-seedbed")}
        for e in w.record.exchanges
        if e.path.endswith("/chat/completions")
    ]
    return facts


@case
async def without_usage(w: World) -> Any:
    return await chat(w, w.client(), stream=True)


@case
async def several_choices(w: World) -> Any:
    return await both(w, w.client(), n=3, temperature=1.0, max_tokens=6)


@case
async def log_probabilities(w: World) -> Any:
    client, asked = await at_home(w), {"logprobs": True, "top_logprobs": 3}
    # An animal is several tokens of which only the last one has a text.
    animals = await both(w, client, max_tokens=32, extra_body={"regex": "🦄🐙"}, **asked)
    return {**await both(w, client, max_tokens=6, **asked), "animals": animals}


@case
async def stops(w: World) -> Any:
    client = await at_home(w)
    free = await chat(w, client, max_tokens=16)
    words = free["choices"][0]["text"].split()
    stop = words[min(3, len(words) - 1)]
    facts = await both(w, client, max_tokens=16, stop=[stop, "\u0000"])
    return {"free": free, "stop": stop, **facts}


@case
async def seeds(w: World) -> Any:
    client = await at_home(w)
    options = {"temperature": 1.0, "max_tokens": 12, "messages": said("Tell me a story.")}
    texts = {}
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        texts[name] = (await chat(w, client, seed=seed, **options))["choices"][0]["text"]
    texts["streamed"] = (await chat(w, client, seed=7, stream=True, **options))["choices"][0]["text"]
    several = await both(w, client, seed=7, n=3, **options)
    return {**texts, "several": {way: [c["text"] for c in a["choices"]] for way, a in several.items()}}


@case
async def limits(w: World) -> Any:
    client = await at_home(w)
    story = {"messages": said("Tell me a long story."), "extra_body": {"ignore_eos": True}}
    return {
        "max_tokens": await both(w, client, max_tokens=5, **story),
        "max_completion_tokens": await both(
            w, client, max_completion_tokens=4, max_tokens=openai.omit, **story
        ),
    }
