"""Completions: whose member answers, what comes back, and what is refused."""

import asyncio
import json
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
from tests.unit.fake_engine import FakeEngine
from tests.unit.gateway_server import Running, running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with running(tmp_path_factory.mktemp("gateway"), population_size=8) as it:
        yield it


def error_of(response: httpx.Response) -> dict[str, Any]:
    body = response.json()
    assert set(body["error"]) == {"message", "type", "param", "code"}
    error: dict[str, Any] = body["error"]
    return error


async def completion_row(server: Running, completion_id: str) -> Any:
    await server.gateway.leases.records.settled()
    return await server.gateway.store.read(
        lambda c: c.execute(
            sa.select(tables.completions).where(tables.completions.c.id == completion_id)
        ).one()
    )


async def test_an_answer_names_its_episode_member_seed_and_version_in_body_and_headers(
    server: Running,
) -> None:
    response = await server.ask()
    body, (sent, address) = response.json(), server.engine.requests[-1]
    about = body["seedbed"]
    assert response.status_code == 200
    assert body["model"] == "toy"
    assert body["id"] == about["completion_id"]
    assert response.headers["x-seedbed-episode"] == about["episode_id"]
    assert response.headers["x-seedbed-completion"] == about["completion_id"]
    assert response.headers["x-seedbed-version"] == str(about["version"]) == "0"
    assert response.headers["x-seedbed-member"] == str(about["member"])
    assert response.headers["x-seedbed-seed"] == about["seed"]
    assert address == (int(about["seed"]), about["sigma"])
    assert sent == {"model": "toy", "messages": [{"role": "user", "content": "hello there"}]}


async def test_the_live_model_answers_unperturbed_under_its_own_name(server: Running) -> None:
    response = await server.ask(model="toy:live")
    body = response.json()
    assert body["model"] == "toy:live"
    assert server.engine.requests[-1][0]["model"] == "toy"
    assert server.engine.requests[-1][1] is None
    assert {body["seedbed"][name] for name in ("population", "member", "seed", "sigma", "sign")} == {None}
    assert "x-seedbed-seed" not in response.headers


async def test_new_episodes_go_round_the_members_and_a_known_one_keeps_its_member(server: Running) -> None:
    answers = [(await server.ask()).json()["seedbed"] for _ in range(8)]
    assert len({answer["member"] for answer in answers}) == 8
    first = answers[3]
    by_body = (await server.ask(seedbed={"episode_id": first["episode_id"]})).json()["seedbed"]
    by_header = (await server.ask(headers={"X-Seedbed-Episode": first["episode_id"]})).json()["seedbed"]
    for again in (by_body, by_header):
        assert {name: again[name] for name in ("episode_id", "member", "seed")} == {
            name: first[name] for name in ("episode_id", "member", "seed")
        }
        assert again["completion_id"] != first["completion_id"]


async def test_one_group_is_spread_over_different_members(server: Running) -> None:
    answers = [(await server.ask(seedbed={"group": "question 7"})).json()["seedbed"] for _ in range(8)]
    assert len({answer["member"] for answer in answers}) == 8


async def test_body_and_header_that_disagree_are_refused_with_both(server: Running) -> None:
    one, two = [(await server.ask()).json()["seedbed"]["episode_id"] for _ in range(2)]
    response = await server.ask(seedbed={"episode_id": one}, headers={"X-Seedbed-Episode": two})
    assert response.status_code == 400
    assert one in error_of(response)["message"]
    assert two in error_of(response)["message"]


async def test_an_unknown_episode_is_refused_rather_than_attributed_to_a_new_one(server: Running) -> None:
    response = await server.ask(seedbed={"episode_id": "ep_typo"})
    assert response.status_code == 404
    assert "'ep_typo'" in error_of(response)["message"]


async def test_an_episode_cannot_change_between_exploring_and_live(server: Running) -> None:
    explored = (await server.ask()).json()["seedbed"]
    response = await server.ask(model="toy:live", seedbed={"episode_id": explored["episode_id"]})
    assert (response.status_code, response.headers["x-should-retry"]) == (409, "false")
    assert f"member {explored['member']}" in error_of(response)["message"]


async def test_an_episode_cannot_change_its_group(server: Running) -> None:
    first = (await server.ask(seedbed={"group": "a"})).json()["seedbed"]
    response = await server.ask(seedbed={"episode_id": first["episode_id"], "group": "b"})
    assert (response.status_code, response.headers["x-should-retry"]) == (409, "false")
    assert "'a'" in error_of(response)["message"]
    assert "'b'" in error_of(response)["message"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("extra_key", "sb1|0|1|2"), ("lora_path", "x"), ("rid", "1"), ("custom_params", {}), ("cache_salt", "s"),
     ("custom_logit_processor", "x"), ("return_hidden_states", True), ("session_params", {}),
     ("input_ids", [1])],
)  # fmt: skip
async def test_the_engines_own_fields_are_refused_by_name(server: Running, field: str, value: object) -> None:
    before = len(server.engine.requests)
    response = await server.ask(**{field: value})
    assert response.status_code == 400
    assert error_of(response)["param"] == field
    assert len(server.engine.requests) == before


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b"{", None, "JSON"),
        (b"[1]", None, "JSON object"),
        (b'{"model": 3, "messages": []}', "model", "3"),
        (b'{"messages": []}', "model", "None"),
        (b'{"model": "toy", "n": 0, "messages": []}', "n", "use 1 or more"),
        (b'{"model": "toy", "n": true, "messages": []}', "n", "True"),
        (b'{"model": "toy", "stream": "yes", "messages": []}', "stream", "yes"),
        (b'{"model": "toy", "seedbed": 3, "messages": []}', "seedbed", "send an object"),
        (
            b'{"model": "toy", "seedbed": {"episode": "x"}, "messages": []}',
            "seedbed.episode",
            "no such field",
        ),
        (b'{"model": "toy", "seedbed": {"group": ""}, "messages": []}', "seedbed.group", "at least 1"),
        (b'{"model": "toy", "functions": [], "messages": []}', "functions", "leave it out"),
        (b'{"model": "toy", "modalities": ["audio"], "messages": []}', "modalities", "leave it out"),
        (b'{"model": "toy", "context": "web", "messages": []}', "context", "no such field"),
        (b'{"model": "toy", "max_output_tokens": 3, "messages": []}', "max_output_tokens", "no such field"),
        (
            b'{"model": "toy", "tool_choice": "required", "messages": [{"role": "user", "content": "a"}]}',
            "tools",
            "leave tool_choice out",
        ),
        (
            b'{"model": "toy", "tool_choice": {"type": "function", "function": {"name": "g"}}, "tools": '
            b'[{"type": "function", "function": {"name": "f"}}], '
            b'"messages": [{"role": "user", "content": "a"}]}',
            "tool_choice",
            "use one of f",
        ),
    ],
)
async def test_bad_bodies_name_field_value_and_remedy(
    server: Running, body: bytes, param: str | None, words: str
) -> None:
    response = await server.http.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    error = error_of(response)
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert words in error["message"]


async def test_an_unknown_model_is_404_and_names_the_ones_that_are_served(server: Running) -> None:
    with pytest.raises(
        openai.NotFoundError, match=r"'gpt-9' is not served here; use 'toy', or 'toy:live'"
    ) as error:
        await server.openai.chat.completions.create(
            model="gpt-9", messages=[{"role": "user", "content": "x"}]
        )
    assert error.value.code == "model_not_found"


async def test_a_body_that_is_too_large_is_413(server: Running) -> None:
    response = await server.http.post("/v1/chat/completions", content=b" " * ((16 << 20) + 1))
    assert response.status_code == 413
    assert error_of(response)["code"] == "request_too_large"

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * (1 << 20)

    response = await server.http.post("/v1/chat/completions", content=endless())
    assert response.status_code == 413


async def test_an_overflow_passes_through_with_both_numbers_and_its_new_episode_is_dropped(
    server: Running,
) -> None:
    leased = server.gateway.leases.population
    response = await server.ask("overflow")
    assert response.status_code == 400
    assert "900" in error_of(response)["message"]
    assert "512" in error_of(response)["message"]
    assert "x-seedbed-episode" not in response.headers
    assert server.gateway.leases.population == leased, "the member is free again"


async def test_streaming_passes_every_token_on_when_it_exists(server: Running) -> None:
    seen: list[Any] = []
    stream = await server.openai.chat.completions.create(
        model="toy", messages=[{"role": "user", "content": "wait a bit"}], stream=True
    )
    iterator = stream.__aiter__()
    for expected in ("wait", "a", "bit"):
        server.engine.tokens.release()
        chunk = await asyncio.wait_for(iterator.__anext__(), 5)
        assert chunk.choices[0].delta.content == expected
        seen.append(chunk)
    rest = [chunk async for chunk in stream]
    assert [chunk.choices[0].finish_reason for chunk in rest] == ["stop"]
    for chunk in seen + rest:
        assert chunk.model == "toy"
        assert chunk.id == chunk.seedbed["completion_id"]
        assert chunk.seedbed["episode_id"] == stream.response.headers["x-seedbed-episode"]
    row = await completion_row(server, seen[0].id)
    assert (row.status, row.prompt_tokens, row.completion_tokens, row.finish_reasons) == (
        "finished",
        7,
        3,
        "stop",
    )


async def test_the_last_chunk_says_if_the_version_moved_meanwhile(server: Running) -> None:
    stream = await server.openai.chat.completions.create(
        model="toy", messages=[{"role": "user", "content": "swap"}], stream=True, n=2
    )
    chunks: list[Any] = [chunk async for chunk in stream]
    assert "last_version" not in chunks[0].seedbed
    assert chunks[-1].seedbed["last_version"] == chunks[-1].seedbed["version"] + 1
    whole = (await server.ask("swap")).json()
    assert whole["seedbed"]["last_version"] == whole["seedbed"]["version"] + 1


async def test_a_stream_ends_as_openais_do(server: Running) -> None:
    response = await server.ask("one two", stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [line for line in response.text.split("\n\n") if line]
    assert events[-1] == "data: [DONE]"
    assert all("seedbed" in json.loads(event.removeprefix("data: ")) for event in events[:-1])


async def test_a_break_in_mid_stream_reaches_the_client_as_an_error(server: Running) -> None:
    stream = await server.openai.chat.completions.create(
        model="toy", messages=[{"role": "user", "content": "please break now"}], stream=True
    )
    with pytest.raises(openai.APIError, match="lost in the middle"):
        _ = [chunk async for chunk in stream]


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_client_that_hangs_up_cancels_the_call_within_a_second(
    server: Running, streaming: bool
) -> None:
    cancelled, sent = server.engine.cancelled, len(server.engine.requests)
    task = asyncio.create_task(server.ask("wait for ever", stream=streaming))
    await server.until(lambda: len(server.engine.requests) > sent)
    await asyncio.sleep(0.05)
    task.cancel()
    await server.until(lambda: server.engine.cancelled > cancelled, 1.0)
    await server.until(lambda: server.gateway.in_flight == 0, 1.0)


async def test_nothing_is_answered_before_it_is_on_disk(server: Running) -> None:
    import threading

    blocked = threading.Event()
    server.gateway.store.submit(lambda _: blocked.wait(10))
    task = asyncio.create_task(server.ask())
    await asyncio.sleep(0.3)
    assert not task.done()
    blocked.set()
    assert (await task).status_code == 200


async def test_models_are_the_loaded_one_exploring_and_live(server: Running) -> None:
    models = [model async for model in server.openai.models.list()]
    assert [model.id for model in models] == ["toy", "toy:live"]
    live: Any = await server.openai.models.retrieve("toy:live")
    assert live.seedbed == {
        "explores": False, "version": 0, "context_length": 512, "dtype": "float32", "tools": True,
        "tool_call_parser": "qwen", "reasoning": False, "reasoning_parser": None,
    }  # fmt: skip
    with pytest.raises(openai.NotFoundError):
        await server.openai.models.retrieve("gpt-9")


async def test_unknown_routes_and_methods_have_openais_error_shape(server: Running) -> None:
    missing = await server.http.get("/v1/nothing")
    assert (missing.status_code, error_of(missing)["code"]) == (404, "unknown_url")
    wrong = await server.http.get("/v1/chat/completions")
    assert (wrong.status_code, error_of(wrong)["type"]) == (405, "invalid_request_error")
    assert wrong.headers["allow"] == "POST"
    query = await server.http.get("/v1/updates?after=minus")
    assert (query.status_code, error_of(query)["param"]) == (400, "after")


async def test_a_bug_is_a_500_in_the_same_shape(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("seedbed_server.gateway.openai.prepare", broken)
    response = await server.ask()
    assert (response.status_code, error_of(response)["type"]) == (500, "server_error")
    assert "ZeroDivision" not in response.text


async def test_many_requests_at_once_keep_their_members_apart(server: Running) -> None:
    answers = await asyncio.gather(*(server.ask(f"number {i}") for i in range(64)))
    sent = {body["messages"][0]["content"]: address for body, address in server.engine.requests}
    for index, answer in enumerate(answers):
        body = answer.json()
        assert body["choices"][0]["message"]["content"] == f"number {index}"
        assert sent[f"number {index}"] == (int(body["seedbed"]["seed"]), body["seedbed"]["sigma"])
    counts = [tally.episodes for tally in server.gateway.leases.population.tallies]  # type: ignore[union-attr]
    assert max(counts) - min(counts) <= 4


async def test_an_answer_does_not_wait_for_nagles_algorithm(server: Running) -> None:
    seconds = []
    for _ in range(20):
        begin = time.perf_counter()
        await server.http.get("/healthz")
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 0.03, "40 ms are a delayed acknowledgement"


async def test_metrics_and_health(server: Running) -> None:
    await server.ask()
    text = (await server.http.get("/metrics")).text
    for name in (
        "seedbed_requests_total{",
        "seedbed_tokens_total{",
        "seedbed_model_version 0.0",
        "seedbed_engine_ready 1.0",
    ):
        assert name in text
    assert (await server.http.get("/healthz")).status_code == 200
    assert (await server.http.get("/readyz")).json() == {"status": "ok", "version": 0}
    schema = (await server.http.get("/openapi.json")).json()
    assert "/v1/feedback" in schema["paths"]


async def test_an_engine_that_is_starting_is_503_with_retry_after(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.may_start.clear()
    async with running(tmp_path, engine, ready=False) as it:
        response = await it.ask()
        assert response.status_code == 503
        assert 0 < int(response.headers["retry-after"]) <= 120
        assert (await it.http.get("/readyz")).status_code == 503
        assert (await it.http.get("/healthz")).status_code == 200
        assert (await it.status())["engine"] == "starting"
        assert (await it.reward(episode_id="ep_x", reward=1.0)).status_code == 404
        engine.may_start.set()
        await it.until(lambda: it.gateway.link.state == "ready")
        assert (await it.ask()).status_code == 200
