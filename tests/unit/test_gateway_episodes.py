"""Episodes of their own: opened, found by every way, conflicting, ended; and those that nobody named."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio
import sqlalchemy as sa

from seedbed_server.store import tables
from tests.unit.gateway_server import Running, running

KNOWN = ("episode_id", "member", "seed")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with running(
        tmp_path_factory.mktemp("episodes"), population_size=8, episodes_per_member=1000
    ) as it:
        yield it


async def opened(server: Running, **terms: Any) -> dict[str, Any]:
    response = await server.http.post("/v1/episodes", json=terms)
    assert response.status_code == 201, response.text
    episode: dict[str, Any] = response.json()
    return episode


def client(server: Running, key: str = "none", url: str | None = None) -> openai.AsyncOpenAI:
    return server.openai.with_options(api_key=key, base_url=url or f"{server.url}/v1")


def talk(text: str = "hello") -> Any:
    return [{"role": "user", "content": text}]


async def about(client: openai.AsyncOpenAI, text: str = "hello", **options: Any) -> dict[str, Any]:
    options.setdefault("messages", talk(text))
    answer: Any = await client.chat.completions.create(model="toy", **options)
    found: dict[str, Any] = answer.seedbed
    return found


async def test_an_opened_episode_has_a_member_a_base_url_and_a_key(server: Running) -> None:
    before = time.time()
    episode = await opened(server, group="task 7", metadata={"agent": "a"}, expires_in=60)
    assert episode["object"] == "episode"
    assert episode["id"].startswith("ep_")
    assert episode["api_key"].startswith("sbk_")
    assert episode["base_url"] == f"{server.url}/v1/episodes/{episode['id']}/v1"
    assert (episode["status"], episode["group"], episode["metadata"]) == ("open", "task 7", {"agent": "a"})
    assert (episode["explores"], episode["implicit"], episode["version"]) == (True, False, 0)
    assert 0 <= episode["member"] < 8
    assert before + 59 <= episode["expires_at"] <= time.time() + 60


async def test_the_key_is_shown_once_and_only_its_hash_is_kept(server: Running) -> None:
    episode = await opened(server)
    again = (await server.http.get(f"/v1/episodes/{episode['id']}")).json()
    assert "api_key" not in again
    assert {name: again[name] for name in again} == {n: episode[n] for n in again}
    row = await server.gateway.store.read(
        lambda c: c.execute(sa.select(tables.episodes).where(tables.episodes.c.id == episode["id"])).one()
    )
    assert episode["api_key"] not in repr(row)
    assert len(row.key_hash) == 32


async def test_an_episode_is_found_by_its_key_url_body_metadata_and_header(server: Running) -> None:
    episode = await opened(server)
    header = {"X-Seedbed-Episode": episode["id"]}
    ways = [
        await about(client(server, episode["api_key"])),
        await about(client(server, url=episode["base_url"])),
        await about(client(server), extra_body={"seedbed": {"episode_id": episode["id"]}}),
        await about(client(server), metadata={"seedbed.episode_id": episode["id"], "other": "kept"}),
        await about(client(server), extra_headers=header),
        await about(client(server, episode["api_key"], episode["base_url"]), extra_headers=header),
    ]
    for found in ways:
        assert (found["episode_id"], found["member"], found["seed"]) == (
            episode["id"],
            episode["member"],
            episode["seed"],
        )
    assert "metadata" not in server.engine.requests[-3][0], "ours to keep"
    assert (await server.http.get(f"/v1/episodes/{episode['id']}")).json()["completions"] == len(ways)


async def test_two_names_that_differ_are_refused_with_both_whichever_they_are(server: Running) -> None:
    one, two = await opened(server), await opened(server)
    header = {"X-Seedbed-Episode": two["id"]}
    asks = [
        (client(server, one["api_key"]), {"extra_headers": header}),
        (client(server, one["api_key"], two["base_url"]), {}),
        (client(server, url=one["base_url"]), {"extra_body": {"seedbed": {"episode_id": two["id"]}}}),
        (client(server), {"metadata": {"seedbed.episode_id": one["id"]}, "extra_headers": header}),
        (
            client(server),
            {
                "extra_body": {"seedbed": {"episode_id": one["id"]}},
                "metadata": {"seedbed.episode_id": two["id"]},
            },
        ),
    ]
    before = len(server.engine.requests)
    for who, options in asks:
        with pytest.raises(openai.BadRequestError) as error:
            await about(who, **options)
        assert one["id"] in error.value.message
        assert two["id"] in error.value.message
        assert error.value.code == "episode_conflict"
    assert len(server.engine.requests) == before


async def test_a_wrong_session_key_is_never_somebody_elses(server: Running) -> None:
    with pytest.raises(openai.AuthenticationError) as error:
        await about(client(server, "sbk_nobody"))
    assert error.value.code == "invalid_api_key"
    with pytest.raises(openai.NotFoundError):
        await about(client(server, url=f"{server.url}/v1/episodes/ep_nobody/v1"))


async def test_a_session_key_reaches_no_other_episode(server: Running) -> None:
    one, two = await opened(server), await opened(server)
    headers = {"Authorization": f"Bearer {one['api_key']}"}
    for method in ("GET", "DELETE"):
        response = await server.http.request(method, f"/v1/episodes/{two['id']}", headers=headers)
        assert response.status_code == 403
    body = {"episode_id": two["id"], "reward": 1.0}
    assert (await server.http.post("/v1/feedback", json=body, headers=headers)).status_code == 403
    answer = await about(client(server, two["api_key"]))
    body = {"completion_id": answer["completion_id"], "reward": 1.0}
    assert (await server.http.post("/v1/feedback", json=body, headers=headers)).status_code == 404
    assert (await server.http.get(f"/v1/episodes/{two['id']}")).json()["reward"] is None


async def test_models_are_listed_below_a_base_url_too(server: Running) -> None:
    episode = await opened(server)
    within = client(server, url=episode["base_url"])
    assert [model.id async for model in within.models.list()] == ["toy", "toy:live"]
    assert (await within.models.retrieve("toy")).id == "toy"


async def test_rewards_need_no_target_with_a_key_or_below_a_base_url(server: Running) -> None:
    episode = await opened(server)
    population = server.gateway.leases.population
    assert population is not None
    for who, value in (
        (client(server, episode["api_key"]), 0.5),
        (client(server, url=episode["base_url"]), 0.75),
    ):
        answer: Any = await who.post("/feedback", cast_to=object, body={"reward": value})
        assert (answer["episode_id"], answer["member"]) == (episode["id"], episode["member"])
        assert (await server.http.get(f"/v1/episodes/{episode['id']}")).json()["reward"] == value


async def test_a_reward_for_a_choice_counts_for_its_completion(server: Running) -> None:
    episode = await opened(server)
    first = await about(client(server, episode["api_key"]), n=3)
    second = await about(client(server, episode["api_key"]))
    posts = [
        {"completion_id": first["completion_id"], "choice": 0, "reward": 1.0},
        {"completion_id": first["completion_id"], "choice": 2, "reward": 0.0},
        {"completion_id": second["completion_id"], "reward": 1.0},
    ]
    for post in posts:
        assert (await server.reward(**post)).json()["result"] == "accepted"
    assert (await server.http.get(f"/v1/episodes/{episode['id']}")).json()["reward"] == 0.75
    assert (await server.reward(**posts[0], reward_id="c0")).json()["result"] == "replaced"
    other = {**posts[1], "reward_id": "c0"}
    assert (await server.reward(**other)).json()["result"] == "conflict"
    beyond = await server.reward(completion_id=first["completion_id"], choice=3, reward=1.0)
    assert (beyond.status_code, beyond.json()["result"]) == (404, "unknown")
    alone = await server.reward(episode_id=episode["id"], choice=1, reward=1.0)
    assert alone.status_code == 400
    await server.reward(completion_id=first["completion_id"], reward=-1.0)
    assert (await server.http.get(f"/v1/episodes/{episode['id']}")).json()["reward"] == 0.0


async def test_a_closed_episode_takes_no_completions_and_still_takes_rewards(server: Running) -> None:
    episode = await opened(server)
    for _ in range(2):
        closed = await server.http.delete(f"/v1/episodes/{episode['id']}")
        assert (closed.status_code, closed.json()["status"]) == (200, "closed")
    headers = {"X-Seedbed-Episode": episode["id"]}
    refused = await server.ask(headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "episode_closed")
    assert refused.headers["x-should-retry"] == "false"
    with pytest.raises(openai.AuthenticationError) as error:
        await about(client(server, episode["api_key"]))
    assert error.value.code == "session_ended"
    key = {"Authorization": f"Bearer {episode['api_key']}"}
    late = await server.http.post("/v1/feedback", json={"reward": 1.0}, headers=key)
    assert late.json()["result"] == "accepted"


async def test_an_episode_expires_by_itself(server: Running) -> None:
    episode = await opened(server, expires_in=1)
    url = f"/v1/episodes/{episode['id']}"
    await asyncio.sleep(1.1)
    assert (await server.http.get(url)).json()["status"] == "expired"
    refused = await server.ask(headers={"X-Seedbed-Episode": episode["id"]})
    assert refused.status_code == 409
    async with asyncio.timeout(5):
        while (await row_of(server, episode["id"])).status != "expired":
            await asyncio.sleep(0.1)


async def row_of(server: Running, episode_id: str) -> Any:
    return await server.gateway.store.read(
        lambda c: c.execute(sa.select(tables.episodes).where(tables.episodes.c.id == episode_id)).one()
    )


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b"{", None, "JSON"),
        (b"[]", None, "one JSON object"),
        (b'{"group": ""}', "group", "at least 1"),
        (b'{"group": 3}', "group", "send a text"),
        (b'{"expires_in": 0}', "expires_in", "use 1 or more"),
        (b'{"expires_in": 1.5}', "expires_in", "whole number"),
        (b'{"expires_in": true}', "expires_in", "True"),
        (b'{"explore": 1}', "explore", "true or false"),
        (b'{"context": "web"}', "context", "leave it out"),
        (b'{"metadata": {"a": 1}}', "metadata.a", "send a text"),
        (b'{"other": 1}', "other", "no such field"),
    ],
)
async def test_bad_terms_name_field_value_and_remedy(
    server: Running, body: bytes, param: str | None, words: str
) -> None:
    response = await server.http.post("/v1/episodes", content=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert words in error["message"]


async def test_an_episode_needs_no_terms_and_nulls_are_none(server: Running) -> None:
    assert (await server.http.post("/v1/episodes")).status_code == 201
    nulls = {"group": None, "context": None, "metadata": None, "explore": None, "expires_in": None}
    assert (await server.http.post("/v1/episodes", json=nulls)).status_code == 201


# -- exploring ---------------------------------------------------------------------------------------


async def test_an_episode_that_does_not_explore_is_answered_by_the_live_model(server: Running) -> None:
    episode = await opened(server, explore=False)
    assert (episode["explores"], episode["member"], episode["sigma"]) == (False, None, None)
    who = client(server, episode["api_key"])
    assert (await about(who))["member"] is None
    live: Any = await who.chat.completions.create(model="toy:live", messages=talk())
    assert (live.model, live.seedbed["episode_id"]) == ("toy:live", episode["id"])
    assert server.engine.requests[-1][1] is None


async def test_a_share_of_the_traffic_explores_and_the_live_name_never_does(tmp_path: Path) -> None:
    async with running(tmp_path, explore=0.25, population_size=4) as it:
        answers = await asyncio.gather(*(it.ask(f"number {i}") for i in range(120)))
        explored = [a.json()["seedbed"]["member"] is not None for a in answers]
        assert 12 <= sum(explored) <= 50
        assert (await opened(it, explore=True))["explores"]
        live = (await it.ask(model="toy:live")).json()["seedbed"]
        assert live["member"] is None


# -- what ended without a reward ---------------------------------------------------------------------


async def test_the_member_of_an_episode_that_ended_without_reward_is_leased_again(tmp_path: Path) -> None:
    async with running(tmp_path, population_size=4) as it:
        episodes = [await opened(it) for _ in range(4)]
        assert [episode["member"] for episode in episodes] == [0, 1, 2, 3]
        await it.http.delete(f"/v1/episodes/{episodes[2]['id']}")
        assert (await opened(it))["member"] == 2
        await it.reward(episode_id=episodes[1]["id"], reward=1.0)
        await it.http.delete(f"/v1/episodes/{episodes[1]['id']}")
        assert (await opened(it))["member"] == 0, "member 1 has what it needs"
        before = it.gateway.leases.population
    async with running(tmp_path, population_size=4) as it:
        assert it.gateway.leases.population == before
        assert (await about(client(it, episodes[0]["api_key"])))["member"] == 0


# -- nobody named one --------------------------------------------------------------------------------


def turn(history: list[dict[str, Any]], answer: httpx.Response, text: str) -> list[dict[str, Any]]:
    message = answer.json()["choices"][0]["message"]
    return [*history, message, {"role": "user", "content": text}]


async def test_a_conversation_that_goes_on_stays_with_its_implicit_episode(server: Running) -> None:
    status = (await server.status())["episodes"]
    history = talk("we begin")
    first = await server.ask(messages=history)
    history = turn(history, first, "and go on")
    second = await server.ask(messages=history)
    third = await server.ask(messages=turn(history, second, "to the end"))
    abouts = [answer.json()["seedbed"] for answer in (first, second, third)]
    assert len({tuple(a[name] for name in KNOWN) for a in abouts}) == 1
    assert len({a["completion_id"] for a in abouts}) == 3
    now = (await server.status())["episodes"]
    assert now["implicit"] == status["implicit"] + 1
    assert now["implicit_continued"] == status["implicit_continued"] + 2
    metrics = (await server.http.get("/metrics")).text
    assert 'seedbed_implicit_requests_total{episode="continued"}' in metrics
    row = await row_of(server, abouts[0]["episode_id"])
    assert row.implicit


async def test_streamed_answers_and_lists_of_text_parts_are_recognised(server: Running) -> None:
    history = talk("stream to me")
    response = await server.ask(messages=history, stream=True)
    parts = [{"type": "text", "text": "stream"}, {"type": "text", "text": "tome"}]
    answer = {"role": "assistant", "content": parts, "refusal": None}
    again = await server.ask(messages=[*history, answer, *talk("more")])
    assert again.json()["seedbed"]["episode_id"] == response.headers["x-seedbed-episode"]


async def test_the_same_messages_again_are_a_new_episode(server: Running) -> None:
    answers = [(await server.ask("a fresh sample")).json()["seedbed"] for _ in range(3)]
    assert len({answer["episode_id"] for answer in answers}) == 3


async def test_another_api_key_is_another_conversation(server: Running) -> None:
    history = talk("whose is it")
    first = await server.ask(messages=history, headers={"Authorization": "Bearer one"})
    history = turn(history, first, "mine")
    other = await server.ask(messages=history, headers={"Authorization": "Bearer two"})
    assert other.json()["seedbed"]["episode_id"] != first.json()["seedbed"]["episode_id"]


async def test_conversations_that_began_alike_are_each_continued_once(server: Running) -> None:
    history = talk("many agents start like this")
    firsts = [await server.ask(messages=history) for _ in range(4)]
    seconds = [await server.ask(messages=turn(history, first, "go on")) for first in firsts]
    ids = [[answer.json()["seedbed"]["episode_id"] for answer in row] for row in (firsts, seconds)]
    assert sorted(ids[0]) == sorted(ids[1])


async def test_a_conversation_goes_on_after_the_server_was_started_again(tmp_path: Path) -> None:
    history = talk("remember me")
    async with running(tmp_path) as it:
        first = await it.ask(messages=history)
        await it.gateway.leases.records.settled()
    async with running(tmp_path) as it:
        second = await it.ask(messages=turn(history, first, "do you"))
    assert second.json()["seedbed"]["episode_id"] == first.json()["seedbed"]["episode_id"]


async def test_a_text_that_goes_on_stays_with_its_implicit_episode(server: Running) -> None:
    async def continued(prompt: Any, **extras: Any) -> tuple[str, str]:
        answer = await server.http.post("/v1/completions", json={"model": "toy", "prompt": prompt, **extras})
        body = answer.json() if not extras.get("stream") else None
        said = "" if body is None else body["choices"][0]["text"]
        return answer.headers["x-seedbed-episode"], said

    status = (await server.status())["episodes"]
    first, said = await continued("once upon a time there was")
    second, more = await continued(["once upon a time there was" + said + " a king"])
    third, _ = await continued("once upon a time there was" + said + " a king" + more + " of", stream=True)
    again, _ = await continued("once upon a time there was")
    other, _ = await continued("once upon a time there was a queen")
    assert first == second == third
    assert len({first, again, other}) == 3
    now = (await server.status())["episodes"]
    assert now["implicit_continued"] == status["implicit_continued"] + 2


async def test_a_text_goes_on_after_the_server_was_started_again(tmp_path: Path) -> None:
    prompt = "remember this text of mine"
    async with running(tmp_path) as it:
        first = await it.http.post("/v1/completions", json={"model": "toy", "prompt": prompt})
        await it.gateway.store.write(lambda _: None)
    prompt += first.json()["choices"][0]["text"] + " now"
    async with running(tmp_path) as it:
        second = await it.http.post("/v1/completions", json={"model": "toy", "prompt": prompt})
    assert second.headers["x-seedbed-episode"] == first.headers["x-seedbed-episode"]


async def test_what_requests_say_of_themselves_is_kept_with_their_episode(server: Running) -> None:
    first = await server.ask("one", metadata={"ticket": "17", "seedbed.group": "g"})
    episode = first.headers["x-seedbed-episode"]
    header = {"X-Seedbed-Episode": episode}
    await server.ask("two", metadata={"ticket": "18", "user": "a"}, headers=header, stream=True)
    for route, body in (("completions", {"prompt": "x"}), ("responses", {"input": "x"})):
        body = {"model": "toy", "metadata": {route: "yes"}, **body}
        assert (await server.http.post(f"/v1/{route}", json=body, headers=header)).status_code == 200
    shown = (await server.http.get(f"/v1/episodes/{episode}")).json()
    assert shown["metadata"] == {"ticket": "18", "user": "a", "completions": "yes", "responses": "yes"}
    assert shown["group"] == "g"
    assert (await row_of(server, episode)).metadata == shown["metadata"]
    mine = await opened(server, metadata={"agent": "a"})
    await server.ask("three", metadata={"step": "1"}, headers={"X-Seedbed-Episode": mine["id"]})
    kept = (await server.http.get(f"/v1/episodes/{mine['id']}")).json()["metadata"]
    assert kept == {"agent": "a", "step": "1"}


async def test_an_episode_has_no_end_of_names(server: Running) -> None:
    header = {"X-Seedbed-Episode": (await opened(server))["id"]}
    for batch in range(4):
        names = {f"n{batch}.{i}": "x" for i in range(16)}
        assert (await server.ask("more", metadata=names, headers=header)).status_code == 200
    refused = await server.ask("more", metadata={"one": "too many"}, headers=header)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "metadata"
    assert (await server.ask("more", metadata={"n0.0": "y"}, headers=header)).status_code == 200


async def test_a_session_key_leaves_no_implicit_trace(server: Running) -> None:
    episode = await opened(server)
    before = len(server.gateway.conversations)
    await about(client(server, episode["api_key"]), "nothing to remember")
    assert len(server.gateway.conversations) == before


async def test_status_warns_when_only_unnamed_traffic_comes_and_no_reward(tmp_path: Path) -> None:
    async with running(tmp_path, population_size=2) as it:
        for index in range(4):
            await it.ask(f"number {index}")
        (warning,) = (await it.status())["warnings"]
        assert "4 episodes were opened by requests that named none" in warning
