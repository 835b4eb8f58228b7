"""Rewards over HTTP: a closed set of answers, each after the commit that it speaks of."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio
import sqlalchemy as sa

from seedbed_server.store import tables
from tests.unit.gateway_server import Running, running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    # So large that no test closes the population.
    async with running(tmp_path_factory.mktemp("feedback"), episodes_per_member=1000) as it:
        yield it


async def episode(server: Running, **extras: Any) -> dict[str, Any]:
    about: dict[str, Any] = (await server.ask(**extras)).json()["seedbed"]
    return about


async def rows(server: Running, episode_id: str) -> list[Any]:
    return await server.gateway.store.read(
        lambda c: list(
            c.execute(
                sa.select(tables.rewards)
                .where(tables.rewards.c.episode_id == episode_id)
                .order_by(tables.rewards.c.id)
            )
        )
    )


def counted(server: Running, about: dict[str, Any]) -> float | None:
    population = server.gateway.leases.population
    assert population is not None
    entry = population.tallies[about["member"]].rewards.get(about["episode_id"])
    return None if entry is None else entry.reward


async def test_a_reward_for_an_episode_is_accepted_and_counts_for_its_member(server: Running) -> None:
    about = await episode(server)
    response = await server.reward(episode_id=about["episode_id"], reward=0.25, feedback_text="brief")
    assert response.status_code == 200
    assert response.json() == {
        "result": "accepted", "episode_id": about["episode_id"], "member": about["member"], "version": 0,
        "message": "on record",
    }  # fmt: skip
    assert counted(server, about) == 0.25
    (row,) = await rows(server, about["episode_id"])
    assert (row.reward, row.feedback_text, row.result, row.counts) == (0.25, "brief", "accepted", True)


async def test_rewards_for_completions_make_the_episodes_mean_until_the_episode_has_its_own(
    server: Running,
) -> None:
    first = await episode(server)
    second = await episode(server, seedbed={"episode_id": first["episode_id"]})
    for about, value in ((first, 1.0), (second, 2.0)):
        answer = (await server.reward(completion_id=about["completion_id"], reward=value)).json()
        assert (answer["result"], answer["episode_id"]) == ("accepted", first["episode_id"])
    assert counted(server, first) == 1.5
    await server.reward(episode_id=first["episode_id"], reward=9)
    assert counted(server, first) == 9.0


async def test_a_repeated_post_is_a_duplicate_and_a_changed_one_a_conflict(server: Running) -> None:
    about = await episode(server)
    post = {"episode_id": about["episode_id"], "reward": 1.0, "reward_id": f"r-{about['episode_id']}"}
    assert (await server.reward(**post)).json()["result"] == "accepted"
    assert (await server.reward(**post)).json()["result"] == "duplicate"
    changed = await server.reward(**{**post, "reward": 2.0})
    assert changed.status_code == 409
    assert changed.headers["x-should-retry"] == "false"
    assert changed.json()["result"] == "conflict"
    assert changed.json()["error"]["code"] == "reward_conflict"
    assert counted(server, about) == 1.0
    other = await episode(server)
    assert (await server.reward(**{**post, "episode_id": other["episode_id"]})).json()["result"] == "conflict"


async def test_the_openai_client_does_not_repeat_a_conflict(server: Running) -> None:
    about = await episode(server)
    post = {"episode_id": about["episode_id"], "reward": 1.0, "reward_id": f"c-{about['episode_id']}"}
    client = server.openai.with_options(max_retries=3)
    first: Any = await client.post("/feedback", cast_to=object, body=post)
    assert first["result"] == "accepted"
    before = server.gateway.metrics.rewards.labels("conflict")._value.get()
    with pytest.raises(openai.ConflictError):
        await client.post("/feedback", cast_to=object, body={**post, "reward": 3.0})
    assert server.gateway.metrics.rewards.labels("conflict")._value.get() == before + 1


async def test_a_second_reward_without_an_id_replaces_the_first(server: Running) -> None:
    about = await episode(server)
    await server.reward(episode_id=about["episode_id"], reward=1.0)
    answer = (await server.reward(episode_id=about["episode_id"], reward=5.0)).json()
    assert (answer["result"], counted(server, about)) == ("replaced", 5.0)
    assert [row.counts for row in await rows(server, about["episode_id"])] == [False, True]


async def test_rewards_of_the_live_model_are_kept_as_a_control_and_never_counted(server: Running) -> None:
    about = await episode(server, model="toy:live")
    answer = (await server.reward(episode_id=about["episode_id"], reward=1.0)).json()
    assert (answer["result"], answer["member"], answer["version"]) == ("accepted", None, None)
    assert "control" in answer["message"]
    population = server.gateway.leases.population
    assert population is not None
    assert all(about["episode_id"] not in tally.rewards for tally in population.tallies)


async def test_unknown_targets_are_404_and_kept_nowhere(server: Running) -> None:
    for post in ({"episode_id": "ep_nobody"}, {"completion_id": "chatcmpl-nobody"}):
        response = await server.reward(**post, reward=1.0)
        assert response.status_code == 404
        body = response.json()
        assert body["result"] == "unknown"
        assert next(iter(post.values())) in body["error"]["message"]
    about = await episode(server)
    mixed = await server.reward(episode_id="ep_nobody", completion_id=about["completion_id"], reward=1.0)
    assert mixed.json()["result"] == "unknown", "a completion of another episode"


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b'{"episode_id": "e", "reward": NaN}', "reward", "nan is not finite"),
        (b'{"episode_id": "e", "reward": Infinity}', "reward", "inf is not finite"),
        (b'{"episode_id": "e", "reward": 1e999}', "reward", "inf is not finite"),
        (b'{"episode_id": "e", "reward": 1' + b"0" * 400 + b"}", "reward", "is not finite"),
        (b'{"episode_id": "e", "reward": true}', "reward", "True is not a number"),
        (b'{"episode_id": "e", "reward": "1"}', "reward", "'1' is not a number"),
        (b'{"episode_id": "e", "reward": null}', "reward", "missing"),
        (b'{"episode_id": "e"}', "reward", "missing"),
        (b'{"reward": 1}', "episode_id", "neither it nor completion_id"),
        (b'{"episode_id": 3, "reward": 1}', "episode_id", "3"),
        (b'{"episode_id": "", "reward": 1}', "episode_id", "''"),
        (b'{"episode_id": "e", "reward": 1, "rewrd": 2}', "rewrd", "no such field"),
        (b"nonsense", None, "not JSON"),
        (b"[]", None, "one JSON object"),
        (b"[" * 100_000, None, "not JSON"),
    ],
)
async def test_bad_posts_name_field_value_and_remedy(
    server: Running, body: bytes, param: str | None, words: str
) -> None:
    response = await server.http.post("/v1/feedback", content=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert words in error["message"]


async def test_a_post_that_is_too_large_is_413(server: Running) -> None:
    response = await server.http.post("/v1/feedback", content=b" " * ((1 << 20) + 1))
    assert response.status_code == 413


async def test_nothing_is_acknowledged_before_the_commit(server: Running) -> None:
    about = await episode(server)
    blocked = threading.Event()
    server.gateway.store.submit(lambda _: blocked.wait(10))
    task = asyncio.create_task(server.reward(episode_id=about["episode_id"], reward=1.0))
    await asyncio.sleep(0.2)
    assert not task.done()
    assert counted(server, about) is None
    blocked.set()
    assert (await task).json()["result"] == "accepted"


async def test_a_store_that_cannot_write_is_503_and_nothing_was_counted(server: Running) -> None:
    about = await episode(server)
    store = server.gateway.store
    pages = await store.write(lambda c: c.exec_driver_sql("PRAGMA page_count").scalar())
    await store.write(lambda c: c.exec_driver_sql(f"PRAGMA max_page_count={pages}").scalar())
    post = {"episode_id": about["episode_id"], "reward": 1.0, "feedback_text": "x" * 60_000}
    response = await server.reward(**post)
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "store_unavailable"
    assert "full" in response.json()["error"]["message"]
    assert counted(server, about) is None
    await store.write(lambda c: c.exec_driver_sql("PRAGMA max_page_count=1000000").scalar())
    assert (await server.reward(**post)).json()["result"] == "accepted"


async def test_the_same_reward_from_many_clients_at_once_is_kept_once(server: Running) -> None:
    about = await episode(server)
    post = {"episode_id": about["episode_id"], "reward": 1.0, "reward_id": f"m-{about['episode_id']}"}
    answers = await asyncio.gather(*(server.reward(**post) for _ in range(20)))
    results = sorted(answer.json()["result"] for answer in answers)
    assert results == ["accepted"] + ["duplicate"] * 19
    assert len(await rows(server, about["episode_id"])) == 1


async def test_a_reward_after_the_update_is_late_and_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        first = await it.population()
        stray = (await it.ask()).json()["seedbed"]["episode_id"]
        version = it.gateway.updates.version
        for episode_id in first:
            answer = (await it.reward(episode_id=episode_id, reward=100.0)).json()
            assert (answer["result"], answer["version"]) == ("late", 0)
        assert it.gateway.updates.version == version == 1
        assert (await it.reward(episode_id=stray, reward=1.0)).json()["result"] == "accepted"
