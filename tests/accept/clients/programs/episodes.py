"""Members, episodes by every way that there is, and rewards."""

import uuid
from collections.abc import Callable
from typing import Any

import httpx2
import openai
from asking import CAPITAL, both, chat, said
from kit import World, case


@case
async def live(w: World) -> Any:
    client = w.client()
    episode = await w.episode(explore=False)
    return {
        "by name": [await both(w, client, model=f"{w.model}:live") for _ in range(2)],
        "explored": await chat(w, client),
        "by episode": await chat(w, w.client(key=episode["api_key"])),
        "episode": episode,
        "episode and name": await chat(w, w.client(key=episode["api_key"]), model=f"{w.model}:live"),
    }


@case
async def ways_to_an_episode(w: World) -> Any:
    episode = await w.episode(group="capitals", metadata={"who": "test"})
    by_key, by_url = w.client(key=episode["api_key"]), w.client(base_url=episode["base_url"])
    anyone = w.client()
    options: dict[str, tuple[Any, dict[str, Any]]] = {
        "key": (by_key, {}),
        "url": (by_url, {}),
        "body": (anyone, {"extra_body": {"seedbed": {"episode_id": episode["id"]}}}),
        "metadata": (anyone, {"metadata": {"seedbed.episode_id": episode["id"]}}),
        "header": (anyone, {"extra_headers": {"X-Seedbed-Episode": episode["id"]}}),
        "all": (
            w.client(key=episode["api_key"], base_url=episode["base_url"]),
            {
                "extra_body": {"seedbed": {"episode_id": episode["id"]}},
                "extra_headers": {"X-Seedbed-Episode": episode["id"]},
            },
        ),
    }
    found: dict[str, Any] = {}
    for name, (client, extras) in options.items():
        answers = await both(w, client, max_tokens=4, **extras)
        text = await w.get(
            client.completions.create(model=w.model, prompt="a", max_tokens=2, **_legal(extras))
        )
        response = await w.get(
            client.responses.create(model=w.model, input="a", max_output_tokens=2, **extras)
        )
        found[name] = [
            answers["whole"]["seedbed"], answers["streamed"]["seedbed"], text.seedbed, response.seedbed
        ]  # fmt: skip
    models = [m.id for m in (await w.get(by_url.models.list())).data]
    afterwards = await w.get(by_key.get(f"/episodes/{episode['id']}", cast_to=object))
    return {"episode": episode, "found": found, "models": models, "afterwards": afterwards}


def _legal(extras: dict[str, Any]) -> dict[str, Any]:
    """`completions.create` of the SDK takes no metadata; the body does."""
    extras = dict(extras)
    if "metadata" in extras:
        extras["extra_body"] = {"metadata": extras.pop("metadata")}
    return extras


@case
async def conversations(w: World) -> Any:
    """No episode is named: a conversation that goes on stays with its member, another one does not."""
    # Keys of their own: another run may have left a conversation that began alike and is to be gone on with.
    client, stranger = (w.client(key=f"{who} {uuid.uuid4()}") for who in ("talker", "stranger"))
    first = await chat(w, client)
    history = [
        *said(CAPITAL),
        {"role": "assistant", "content": first["choices"][0]["text"]},
        {"role": "user", "content": "And of Italy?"},
    ]
    second = await chat(w, client, messages=history, stream=True)
    third = [*history, {"role": "assistant", "content": second["choices"][0]["text"]}, *said("And of Spain?")]
    return {
        "turns": [answer["seedbed"] for answer in (first, second, await chat(w, client, messages=third))],
        "stranger": (await chat(w, stranger, messages=history))["seedbed"],
        "again": (await chat(w, client))["seedbed"],
    }


@case
async def rewards(w: World) -> Any:
    """Through the session key, below the base URL, by id, and for one choice of several."""
    facts: dict[str, Any] = {}
    for number, way in enumerate(("key", "url", "episode_id", "completion_id", "choice")):
        episode = await w.episode()
        client = w.client(base_url=episode["base_url"]) if way == "url" else w.client(key=episode["api_key"])
        answers = [await chat(w, client, max_tokens=4, n=2, temperature=1.0) for _ in range(2)]
        body: dict[str, Any] = {"reward": 0.25 + number, "reward_id": f"{way} of {episode['id']}"}
        poster = client
        if way == "episode_id":
            poster, body["episode_id"] = w.client(), episode["id"]
        if way in ("completion_id", "choice"):
            poster, body["completion_id"] = w.client(), answers[0]["id"]
        if way == "choice":
            body["choice"] = 1
        posted = await w.get(poster.post("/feedback", cast_to=object, body=body))
        repeated = await w.get(poster.post("/feedback", cast_to=object, body=body))
        changed = await w.raises(
            lambda p=poster, b=body: p.with_options(max_retries=2).post(
                "/feedback", cast_to=object, body=b | {"reward": -1.0}
            )
        )
        state = await w.get(w.client().get(f"/episodes/{episode['id']}", cast_to=object))
        facts[way] = {
            "episode": episode["id"], "member": episode["member"], "reward": body["reward"], "posted": posted,
            "repeated": repeated, "changed": changed, "state": state,
            "members": [answer["seedbed"]["member"] for answer in answers],
        }  # fmt: skip
    return facts


@case
async def connections(w: World) -> Any:
    """Many members over one connection, and one member over many."""
    library = httpx2.AsyncClient if w.asynchronous else httpx2.Client
    kind = openai.AsyncOpenAI if w.asynchronous else openai.OpenAI
    narrow = kind(
        base_url=f"{w.setting.url}/v1", api_key="none", max_retries=0,
        http_client=library(limits=httpx2.Limits(max_connections=1), timeout=120),
    )  # fmt: skip
    one_connection = [(await chat(w, narrow, max_tokens=2))["seedbed"] for _ in range(8)]
    await w.get(narrow.close())
    episode = await w.episode()
    clients = [w.client(key=episode["api_key"]) for _ in range(8)]

    def ask(client: Any) -> Callable[[], Any]:
        return lambda: client.chat.completions.create(
            model=w.model, messages=said(CAPITAL), max_tokens=4, temperature=0
        )

    answers = await w.together(*(ask(client) for client in clients))
    return {
        "one connection": [about["member"] for about in one_connection],
        "episode": episode,
        "one member": [
            [a.seedbed["episode_id"], a.seedbed["member"], a.choices[0].message.content] for a in answers
        ],
    }
