"""litellm: a conversation with a tool and streaming, in each way to an episode."""

import json
from typing import Any

import httpx
import litellm
from frameworks import Way, through_every_way
from kit import World, case, main
from wire import async_client, sync_client

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@case
async def conversation(w: World) -> Any:
    async def work(way: Way) -> dict[str, Any]:
        litellm.client_session = sync_client(httpx, w.record)
        litellm.aclient_session = async_client(httpx, w.record)
        litellm.in_memory_llm_clients_cache.flush_cache()
        options: dict[str, Any] = {
            "model": f"openai/{w.model}",
            "api_base": way.base_url,
            "api_key": way.key,
            "extra_headers": way.headers,
            "temperature": 0,
            "max_tokens": 64,
            "num_retries": 2,
        }
        history: list[Any] = [{"role": "user", "content": "How is the weather in Rome?"}]
        forced = {"type": "function", "function": {"name": "weather"}}
        answer = litellm.completion(
            messages=history, tools=[WEATHER], tool_choice=forced, parallel_tool_calls=False, **options
        )
        message = answer.choices[0].message
        call = message.tool_calls[0]
        history += [
            message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "Sunny."},
            {"role": "user", "content": "So what shall I wear?"},
        ]
        options["max_tokens"] = 8
        stream = await litellm.acompletion(
            messages=history, stream=True, stream_options={"include_usage": True}, **options
        )
        pieces = [piece async for piece in stream]
        text = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
        history += [{"role": "assistant", "content": text}, {"role": "user", "content": "Are you sure?"}]
        again = await litellm.acompletion(messages=history, **options)
        return {
            "call": [call.function.name, json.loads(call.function.arguments)],
            "pieces": len(pieces),
            "text": text,
            "again": again.choices[0].message.content,
            "tokens": again.usage.completion_tokens,
        }

    return await through_every_way(w, work)


@case
async def errors(w: World) -> Any:
    """litellm sorts failures by status and message."""
    litellm.client_session = sync_client(httpx, w.record)
    litellm.in_memory_llm_clients_cache.flush_cache()
    found = {}
    for name, options in {
        "model": {"model": "openai/gpt-9", "messages": [{"role": "user", "content": "a"}]},
        "overflow": {
            "model": f"openai/{w.model}", "messages": [{"role": "user", "content": "word " * 10_000}]
        },
        "temperature": {
            "model": f"openai/{w.model}", "messages": [{"role": "user", "content": "a"}], "temperature": -1
        },
    }.items():  # fmt: skip
        try:
            litellm.completion(api_base=f"{w.setting.url}/v1", api_key="none", num_retries=0, **options)
        except Exception as error:
            found[name] = {"kind": type(error).__name__, "status": getattr(error, "status_code", None)}
    return found


if __name__ == "__main__":
    main()
