"""`/v1/completions` and `/v1/responses`."""

from typing import Any

from asking import CAPITAL, at_home
from kit import World, case
from structure import TOOLS, Trip


@case
async def texts(w: World) -> Any:
    """`/v1/completions`."""
    home = await at_home(w)

    async def complete(
        *, stream: bool, prompt: Any = "The capital of France is", **options: Any
    ) -> dict[str, Any]:
        options = {"model": w.model, "prompt": prompt, "max_tokens": 8, "temperature": 0, **options}
        # The episode belongs to a member, and the live model to none.
        client = w.client() if options["model"] != w.model else home
        if stream:
            options["stream_options"] = {"include_usage": True}
        result = await w.get(client.completions.create(stream=stream, **options))
        parts = await w.every(result) if stream else [result]
        facts: dict[str, Any] = {
            "parts": len(parts),
            "id": parts[0].id,
            "seedbed": parts[0].seedbed,
            "choices": {},
        }
        for part in parts:
            if part.usage is not None:
                facts["usage"] = part.usage.model_dump()
            for choice in part.choices:
                found = facts["choices"].setdefault(
                    choice.index, {"text": "", "finish": None, "tokens": 0, "top": 0}
                )
                found["text"] += choice.text
                found["finish"] = choice.finish_reason or found["finish"]
                if choice.logprobs:
                    found["tokens"] += len(choice.logprobs.token_logprobs or [])
                    found["top"] += len(choice.logprobs.top_logprobs or [])
        facts["choices"] = [facts["choices"][index] for index in sorted(facts["choices"])]
        return facts

    async def pair(**options: Any) -> dict[str, Any]:
        return {
            "whole": await complete(stream=False, **options),
            "streamed": await complete(stream=True, **options),
        }

    return {
        "plain": await pair(logprobs=2),
        "several": await pair(prompt=["One, two,", "A, B,"], n=2, temperature=1.0, max_tokens=4),
        "tokens": await pair(prompt=[504, 3575, 282, 4649, 314]),
        "echo": await complete(stream=False, echo=True),
        "regex": await pair(extra_body={"regex": " [A-Z][a-z]{2,9}"}, max_tokens=16),
        "live": await pair(model=f"{w.model}:live"),
    }


@case
async def responses(w: World) -> Any:
    home = await at_home(w)

    async def respond(*, stream: bool, **options: Any) -> dict[str, Any]:
        options = {"model": w.model, "input": CAPITAL, "max_output_tokens": 32, "temperature": 0, **options}
        client = w.client() if options["model"] != w.model else home
        result = await w.get(client.responses.create(stream=stream, **options))
        facts: dict[str, Any] = {}
        if stream:
            events = await w.every(result)
            facts["kinds"] = [event.type for event in events]
            result = events[-1].response
        calls = [item for item in result.output if item.type == "function_call"]
        return facts | {
            "id": result.id,
            "model": result.model,
            "status": result.status,
            "text": result.output_text,
            "usage": result.usage.model_dump(),
            "seedbed": getattr(result, "seedbed", None),
            "calls": [{"name": call.name, "arguments": call.arguments} for call in calls],
        }

    async def pair(**options: Any) -> dict[str, Any]:
        return {
            "whole": await respond(stream=False, **options),
            "streamed": await respond(stream=True, **options),
        }

    tool = {"type": "function", **TOOLS[0]["function"]}
    schema = {"type": "json_schema", "name": "trip", "strict": True, "schema": Trip.model_json_schema()}
    history = [
        {"role": "user", "content": CAPITAL},
        {"role": "assistant", "content": "Paris."},
        {"role": "user", "content": "And of Italy?"},
    ]
    return {
        "plain": await pair(instructions="Answer in one word."),
        "history": await pair(input=history),
        "tool": await pair(
            tools=[tool], tool_choice="required", parallel_tool_calls=False, max_output_tokens=96
        ),
        "schema": await pair(text={"format": schema}, max_output_tokens=64),
        "live": await pair(model=f"{w.model}:live"),
        "cut": await pair(max_output_tokens=3),
    }


@case
async def response_log_probabilities(w: World) -> Any:
    response = await w.get(
        w.client().responses.create(
            model=w.model, input=CAPITAL, max_output_tokens=8, temperature=0, top_logprobs=2,
            include=["message.output_text.logprobs"],
        )
    )  # fmt: skip
    entries = response.output[0].content[0].logprobs
    return {"entries": [entry.model_dump() for entry in entries], "used": response.usage.output_tokens}
