"""Tools, and answers that must have a form."""

from typing import Any, Literal

from asking import at_home, both, said
from kit import World, case
from pydantic import BaseModel

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city.",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"enum": [1, 2, 3]}},
                "required": ["city", "days"],
                "additionalProperties": False,
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "light",
            "description": "Switches a light.",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"on": {"type": "boolean"}},
                "required": ["on"],
                "additionalProperties": False,
            },
        },
    },
]


class Trip(BaseModel):
    city: Literal["Paris", "Rome"]
    days: Literal[1, 2, 3]


@case
async def tools(w: World) -> Any:
    client = await at_home(w)
    question = said("How will the weather be in Paris tomorrow?")
    one = {"tools": TOOLS, "parallel_tool_calls": False}
    named = {**one, "tool_choice": {"type": "function", "function": {"name": "weather"}}}
    needed = {**one, "tool_choice": "required"}
    facts = {
        "named": await both(w, client, messages=question, max_tokens=96, **named),
        "required": await both(w, client, messages=question, max_tokens=96, **needed),
        "none": await both(w, client, messages=question, tools=TOOLS, tool_choice="none"),
    }
    call = facts["named"]["whole"]["choices"][0]["tools"][0]
    function = {"name": call["name"], "arguments": call["arguments"]}
    history = [
        *question,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call["id"], "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call["id"], "content": "Sunny, 24 degrees."},
    ]
    facts["afterwards"] = await both(w, client, messages=history, tools=TOOLS)
    return facts


@case
async def tools_by_the_helper(w: World) -> Any:
    """`chat.completions.stream` of the SDK puts the pieces of a call together by itself."""
    manager = (await at_home(w)).chat.completions.stream(
        model=w.model, messages=said("Switch on the light."), max_tokens=96, temperature=0,
        tools=TOOLS, tool_choice={"type": "function", "function": {"name": "light"}},
        parallel_tool_calls=False,
    )  # fmt: skip
    async with w.inside(manager) as stream:
        kinds = [event.type async for event in w.each(stream)]
        final = await w.get(stream.get_final_completion())
    call = final.choices[0].message.tool_calls[0]
    return {"kinds": sorted(set(kinds)), "name": call.function.name, "arguments": call.function.arguments}


@case
async def structure(w: World) -> Any:
    client = await at_home(w)
    question = said("Plan a trip to Rome for two days. Answer in JSON.")
    parsed = await w.get(
        client.chat.completions.parse(
            model=w.model, messages=question, max_tokens=64, temperature=0, response_format=Trip
        )
    )
    schema = {
        "type": "json_schema",
        "json_schema": {"name": "trip", "strict": True, "schema": Trip.model_json_schema()},
    }
    return {
        "parsed": parsed.choices[0].message.parsed.model_dump(),
        "schema": await both(w, client, messages=question, max_tokens=64, response_format=schema),
        "object": await both(
            w, client, messages=question, max_tokens=64, response_format={"type": "json_object"}
        ),
    }


@case
async def grammars(w: World) -> Any:
    client = await at_home(w)
    return {
        "regex": await both(w, client, extra_body={"regex": "(yes|no), [0-9]{3}"}, max_tokens=24),
        "ebnf": await both(w, client, extra_body={"ebnf": 'root ::= "red" | "green"'}, max_tokens=24),
    }


@case
async def metadata(w: World) -> Any:
    return await both(w, w.client(), metadata={"ticket": "17"})
