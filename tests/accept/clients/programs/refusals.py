"""What is refused, by which name, and whether the SDK tries it again."""

from collections.abc import Callable
from typing import Any

from asking import CAPITAL, said
from kit import World, case


@case
async def refusals(w: World) -> Any:
    client = w.client(retries=2)
    found: dict[str, Any] = {}

    def create(**options: Any) -> Callable[[], Any]:
        options = {"model": w.model, "messages": said(CAPITAL), "max_tokens": 4, **options}
        return lambda: client.chat.completions.create(**options)

    for stream in (False, True):
        for name, options in {
            "model": {"model": "gpt-9"},
            "overflow": {"messages": said("word " * 10_000)},
            "temperature": {"temperature": -1},
            "messages": {"messages": "text"},
            "functions": {"functions": [{"name": "f", "parameters": {}}]},
            "web_search_options": {"web_search_options": {}},
            "tool_choice": {"tool_choice": "required"},
            "regex": {"extra_body": {"regex": "("}},
            **{
                field: {"extra_body": {field: value}}
                for field, value in {
                    "extra_key": "sb1|0|1|0x1p-3", "lora_path": "a", "rid": "r", "custom_params": {"a": 1},
                    "cache_salt": "s", "custom_logit_processor": "p",
                }.items()
            },
        }.items():  # fmt: skip
            found[f"{name} {'streamed' if stream else 'whole'}"] = await w.raises(
                create(stream=stream, **options)
            )
    for field, value in {
        "extra_key": "sb1|0|1|0x1p-3",
        "lora_path": "a",
        "rid": "r",
        "custom_params": {"a": 1},
    }.items():
        found[f"completions {field}"] = await w.raises(
            lambda f=field, v=value: client.completions.create(model=w.model, prompt="a", extra_body={f: v})
        )
        found[f"responses {field}"] = await w.raises(
            lambda f=field, v=value: client.responses.create(model=w.model, input="a", extra_body={f: v})
        )
    found["completions model"] = await w.raises(lambda: client.completions.create(model="gpt-9", prompt="a"))
    found["responses model"] = await w.raises(lambda: client.responses.create(model="gpt-9", input="a"))
    found["responses background"] = await w.raises(
        lambda: client.responses.create(model=w.model, input="a", background=True)
    )
    found["responses web_search"] = await w.raises(
        lambda: client.responses.create(model=w.model, input="a", tools=[{"type": "web_search"}])
    )
    found["route"] = await w.raises(lambda: client.embeddings.create(model=w.model, input="a"))
    return found


@case
async def permissions(w: World) -> Any:
    """Keys and episodes that do not fit, and an episode that has ended. The SDK must not try these again."""
    one, two = await w.episode(), await w.episode()

    async def fails(client: Any, **options: Any) -> Any:
        return await w.raises(
            lambda: client.chat.completions.create(
                model=w.model, messages=said(CAPITAL), max_tokens=2, **options
            )
        )

    in_two = {"extra_headers": {"X-Seedbed-Episode": two["id"]}}
    facts = {
        "ids": [one["id"], two["id"]],
        "key and header": await fails(w.client(key=one["api_key"], retries=2), **in_two),
        "url and header": await fails(w.client(base_url=one["base_url"], retries=2), **in_two),
        "body and header": await fails(
            w.client(retries=2), extra_body={"seedbed": {"episode_id": one["id"]}}, **in_two
        ),
        "metadata and body": await fails(
            w.client(retries=2),
            metadata={"seedbed.episode_id": one["id"]},
            extra_body={"seedbed": {"episode_id": two["id"]}},
        ),
        "unknown key": await fails(w.client(key="sbk_nobody", retries=2)),
        "unknown episode": await fails(w.client(retries=2), extra_headers={"X-Seedbed-Episode": "ep_nobody"}),
        "another's episode": await w.raises(
            lambda: w.client(key=one["api_key"]).get(f"/episodes/{two['id']}", cast_to=object)
        ),
    }
    closed = await w.get(w.client().delete(f"/episodes/{two['id']}", cast_to=object))
    again = await w.get(w.client().delete(f"/episodes/{two['id']}", cast_to=object))
    facts["closed"] = [closed["status"], again["status"]]
    facts["closed by header"] = await fails(w.client(retries=2), **in_two)
    facts["closed by key"] = await fails(w.client(key=two["api_key"], retries=2))
    return facts
