"""langchain-openai: a conversation with a tool, structure and streaming, in each way to an episode."""

from typing import Any, Literal

import httpx2
from frameworks import Way, through_every_way
from kit import World, case, main
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from wire import async_client, sync_client


class Trip(BaseModel):
    """A trip to a city."""

    city: Literal["Paris", "Rome"]
    days: Literal[1, 2, 3]


@tool
def weather(city: Literal["Paris", "Rome"]) -> str:
    """The weather of a city."""
    return f"It is sunny in {city}."


def model_of(w: World, way: Way, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=w.model,
        base_url=way.base_url,
        api_key=way.key,
        default_headers=way.headers,
        temperature=0,
        max_retries=2,
        stream_usage=True,
        http_client=sync_client(httpx2, w.record),
        http_async_client=async_client(httpx2, w.record),
        **options,
    )


@case
async def conversation(w: World) -> Any:
    async def work(way: Way) -> dict[str, Any]:
        model = model_of(w, way, max_tokens=64)
        history: list[Any] = [HumanMessage("How is the weather in Rome?")]
        caller = model.bind_tools([weather], tool_choice="weather", strict=True, parallel_tool_calls=False)
        called = caller.invoke(history)
        call = called.tool_calls[0]
        history += [called, ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])]
        history.append(HumanMessage("So what shall I wear?"))
        short = model.bind(max_tokens=8)
        pieces = [piece async for piece in short.astream(history)]
        whole = pieces[0]
        for piece in pieces[1:]:
            whole = whole + piece
        again = await short.ainvoke([*history, whole, HumanMessage("Are you sure?")])
        trip = model.with_structured_output(Trip, method="json_schema").invoke("Two days in Rome, please.")
        return {
            "call": [call["name"], call["args"]],
            "pieces": len(pieces),
            "text": whole.content,
            "usage": whole.usage_metadata,
            "again": again.content,
            "trip": trip.model_dump(),
        }

    return await through_every_way(w, work)


@case
async def responses(w: World) -> Any:
    """The same class through `/v1/responses`."""

    async def work(way: Way) -> dict[str, Any]:
        model = model_of(w, way, max_tokens=24, use_responses_api=True)
        first = model.invoke("What is the capital of France?")
        pieces = [
            piece
            async for piece in model.astream([HumanMessage("Hello"), first, HumanMessage("And of Italy?")])
        ]
        return {"text": first.text, "pieces": len(pieces), "streamed": "".join(p.text for p in pieces)}

    return await through_every_way(w, work)


if __name__ == "__main__":
    main()
