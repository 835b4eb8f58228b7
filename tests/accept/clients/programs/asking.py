"""Asking for a chat completion with either client, streamed or not, and telling what came in one form."""

import time
from typing import Any

from kit import World

CAPITAL = "What is the capital of France?"


def said(text: str) -> Any:
    return [{"role": "user", "content": text}]


async def chat(
    w: World, client: Any, *, stream: bool = False, messages: Any = None, **options: Any
) -> dict[str, Any]:
    """One answer in one form, however it came."""
    options = {
        "model": w.model,
        "messages": messages or said(CAPITAL),
        "max_tokens": 12,
        "temperature": 0,
        **options,
    }
    begin = time.monotonic()
    result = await w.get(client.chat.completions.create(stream=stream, **options))
    facts: dict[str, Any] = {"id": None, "model": None, "usage": None, "chunks": 0}
    choices: dict[int, dict[str, Any]] = {}

    def choice_of(index: int) -> dict[str, Any]:
        return choices.setdefault(index, {"text": "", "finish": None, "logprobs": [], "tools": {}})

    if not stream:
        facts |= {"id": result.id, "model": result.model, "usage": result.usage.model_dump()}
        facts["seedbed"] = result.seedbed
        for choice in result.choices:
            found = choice_of(choice.index)
            found |= {"text": choice.message.content or "", "finish": choice.finish_reason}
            if choice.logprobs:
                found["logprobs"] = [t.model_dump() for t in choice.logprobs.content]
            for number, call in enumerate(choice.message.tool_calls or []):
                found["tools"][number] = {
                    "id": call.id,
                    "name": call.function.name,
                    "arguments": call.function.arguments,
                }
    else:
        async for chunk in w.each(result):
            if not facts["chunks"]:
                facts["first_seconds"] = time.monotonic() - begin
            facts["chunks"] += 1
            facts |= {"id": chunk.id, "model": chunk.model, "seedbed": chunk.seedbed}
            if chunk.usage is not None:
                facts["usage"] = chunk.usage.model_dump()
            for choice in chunk.choices:
                found = choice_of(choice.index)
                found["text"] += choice.delta.content or ""
                found["finish"] = choice.finish_reason or found["finish"]
                if choice.logprobs:
                    found["logprobs"] += [t.model_dump() for t in choice.logprobs.content or []]
                for call in choice.delta.tool_calls or []:
                    tool = found["tools"].setdefault(call.index, {"id": None, "name": None, "arguments": ""})
                    tool["id"] = call.id or tool["id"]
                    tool["name"] = call.function.name or tool["name"]
                    tool["arguments"] += call.function.arguments or ""
    for found in choices.values():
        found["tools"] = [found["tools"][index] for index in sorted(found["tools"])]
    facts["seconds"] = time.monotonic() - begin
    facts["choices"] = [choices[index] for index in sorted(choices)]
    return facts


async def both(w: World, client: Any, **options: Any) -> dict[str, Any]:
    """Not streamed and streamed, the latter with usage."""
    return {
        "whole": await chat(w, client, **options),
        "streamed": await chat(w, client, stream=True, stream_options={"include_usage": True}, **options),
    }


async def at_home(w: World) -> Any:
    """A client within an episode of its own: at temperature 0 the same question has the same answer."""
    return w.client(key=(await w.episode())["api_key"])
