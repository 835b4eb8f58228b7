"""openai-agents: a loop of two tools, then a sentence, in each way to an episode."""

from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2
from frameworks import Way, through_every_way
from kit import World, case, main
from openai import AsyncOpenAI
from wire import async_client

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunContextWrapper,
    Runner,
    StopAtTools,
    function_tool,
    set_tracing_disabled,
)

set_tracing_disabled(disabled=True)


@dataclass
class Steps:
    """What the loop has done so far."""

    called: list[str] = field(default_factory=list)


def _is_first(context: RunContextWrapper[Steps], _: Any) -> bool:
    return not context.context.called


def _is_second(context: RunContextWrapper[Steps], _: Any) -> bool:
    return context.context.called == ["look_up"]


@function_tool(is_enabled=_is_first)
def look_up(context: RunContextWrapper[Steps], city: Literal["Paris", "Rome"]) -> str:
    """Looks up the weather of a city."""
    context.context.called.append("look_up")
    return f"Sunny in {city}."


@function_tool(is_enabled=_is_second)
def write_down(context: RunContextWrapper[Steps], weather: Literal["sunny", "rainy"]) -> str:
    """Writes the weather down."""
    context.context.called.append("write_down")
    return f"Written down: {weather}."


async def loop(w: World, way: Way, kind: Any, *, stream: bool) -> dict[str, Any]:
    client = AsyncOpenAI(
        base_url=way.base_url,
        api_key=way.key,
        default_headers=way.headers,
        http_client=async_client(httpx2, w.record),
    )
    agent = Agent(
        name="Weather",
        instructions="Look the weather up and write it down.",
        model=kind(model=w.model, openai_client=client),
        model_settings=ModelSettings(
            temperature=0,
            max_tokens=128,
            tool_choice="required",
            parallel_tool_calls=False,
            include_usage=True,
            store=False,
        ),
        tools=[look_up, write_down],
        tool_use_behavior=StopAtTools(stop_at_tool_names=["write_down"]),
        reset_tool_choice=False,
    )
    steps = Steps()

    async def go(who: Agent, question: Any) -> Any:
        if not stream:
            return await Runner.run(who, question, context=steps, max_turns=4)
        result = Runner.run_streamed(who, question, context=steps, max_turns=4)
        async for _ in result.stream_events():
            pass
        return result

    first = await go(agent, "How is the weather in Rome? Write it down.")
    talker = agent.clone(tools=[], model_settings=ModelSettings(temperature=0, max_tokens=8, store=False))
    said = await go(talker, [*first.to_input_list(), {"role": "user", "content": "Thank you. Say goodbye."}])
    await client.close()
    return {
        "called": steps.called,
        "output": first.final_output,
        "said": said.final_output,
        "requests": first.context_wrapper.usage.requests,
        "tokens": first.context_wrapper.usage.total_tokens,
    }


@case
async def tool_loop(w: World) -> Any:
    return await through_every_way(
        w, lambda way: loop(w, way, OpenAIChatCompletionsModel, stream=way.name == "key")
    )


@case
async def tool_loop_of_responses(w: World) -> Any:
    return await through_every_way(
        w, lambda way: loop(w, way, OpenAIResponsesModel, stream=way.name == "key")
    )


if __name__ == "__main__":
    main()
