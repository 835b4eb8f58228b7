"""Retries of the SDK, clients that leave, and more requests than may wait."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio
import sqlalchemy as sa

from seedbed_server.gateway.admission import Admission, wait_seconds
from seedbed_server.gateway.errors import ApiError
from seedbed_server.gateway.retries import Recording, Retries
from seedbed_server.store import tables
from tests.unit.fake_engine import FakeEngine
from tests.unit.gateway_server import Running, running

MARK = {"x-stainless-retry-count": "1"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with running(tmp_path_factory.mktemp("retries"), population_size=8, episodes_per_member=1000) as it:
        yield it


async def completions_of(server: Running, episode_id: str) -> list[Any]:
    await server.gateway.leases.records.settled()
    query = sa.select(tables.completions).where(tables.completions.c.episode_id == episode_id)
    return await server.gateway.store.read(lambda c: list(c.execute(query)))


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_marked_repetition_gets_the_finished_answer_once_more(
    server: Running, streaming: bool
) -> None:
    text = f"lost on the way {streaming}"
    first = await server.ask(text, stream=streaming)
    asked = len(server.engine.requests)
    again = await server.ask(text, stream=streaming, headers=MARK)
    assert again.content == first.content
    assert again.headers["x-seedbed-retry"] == "replayed"
    assert again.headers["x-seedbed-completion"] == first.headers["x-seedbed-completion"]
    assert len(server.engine.requests) == asked
    fresh = await server.ask(text, stream=streaming)
    assert fresh.headers["x-seedbed-completion"] != first.headers["x-seedbed-completion"]
    assert "x-seedbed-retry" not in fresh.headers


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_marked_repetition_joins_the_running_answer_from_its_first_byte(
    server: Running, streaming: bool
) -> None:
    text = f"wait for me {streaming}"
    asked = len(server.engine.requests)
    first = asyncio.create_task(server.ask(text, stream=streaming))
    await server.until(lambda: len(server.engine.requests) > asked)
    if streaming:
        server.engine.tokens.release()
    await asyncio.sleep(0.05)
    second = asyncio.create_task(server.ask(text, stream=streaming, headers=MARK))
    await asyncio.sleep(0.05)
    for _ in range(5):
        server.engine.tokens.release()
    one, two = await first, await second
    server.engine.tokens = asyncio.Semaphore(0)
    assert one.content == two.content
    assert two.headers["x-seedbed-retry"] == "joined"
    assert len(server.engine.requests) == asked + 1


async def test_a_running_answer_outlives_its_first_client_while_a_retry_reads_it(server: Running) -> None:
    asked, cancelled = len(server.engine.requests), server.engine.cancelled
    first = asyncio.create_task(server.ask("wait until I am gone", stream=True))
    await server.until(lambda: len(server.engine.requests) > asked)
    second = asyncio.create_task(server.ask("wait until I am gone", stream=True, headers=MARK))
    await asyncio.sleep(0.1)
    first.cancel()
    await asyncio.sleep(0.2)
    for _ in range(5):
        server.engine.tokens.release()
    assert (await second).text.endswith("data: [DONE]\n\n")
    server.engine.tokens = asyncio.Semaphore(0)
    assert server.engine.cancelled == cancelled


async def test_a_retry_of_a_cancelled_stream_is_asked_anew_in_the_same_episode(server: Running) -> None:
    asked, cancelled = len(server.engine.requests), server.engine.cancelled
    body = {"model": "toy", "messages": [{"role": "user", "content": "wait a little"}], "stream": True}
    async with server.http.stream("POST", "/v1/chat/completions", json=body) as stream:
        episode = stream.headers["x-seedbed-episode"]
    await server.until(lambda: server.engine.cancelled > cancelled, 1.0)
    again = asyncio.create_task(server.http.post("/v1/chat/completions", json=body, headers=MARK))
    await server.until(lambda: len(server.engine.requests) == asked + 2)
    for _ in range(3):
        server.engine.tokens.release()
    answer = await again
    server.engine.tokens = asyncio.Semaphore(0)
    assert answer.headers["x-seedbed-episode"] == episode
    assert "x-seedbed-retry" not in answer.headers
    assert sorted(row.status for row in await completions_of(server, episode)) == ["cancelled", "finished"]


async def test_a_retry_of_a_cancelled_whole_answer_counts_its_episode_once(server: Running) -> None:
    before, cancelled = server.gateway.leases.population, server.engine.cancelled
    first = asyncio.create_task(server.ask("wait in vain"))
    asked = len(server.engine.requests)
    await server.until(lambda: len(server.engine.requests) > asked)
    first.cancel()
    await server.until(lambda: server.engine.cancelled > cancelled, 1.0)
    assert server.gateway.leases.population == before, "the member is free again"
    again = asyncio.create_task(server.ask("wait in vain", headers=MARK))
    await server.until(lambda: len(server.engine.requests) > asked + 1)
    server.engine.tokens.release()
    assert (await again).status_code == 200


async def test_a_retry_gets_a_whole_answer_whenever_the_hanging_up_is_noticed(server: Running) -> None:
    async def one(number: int) -> str | None:
        """Hangs up `number` tenths of a millisecond after or before its retry."""
        body = {"model": "toy", "messages": [{"role": "user", "content": f"wait a b c d {number}"}]}
        url, asked = "/v1/chat/completions", {**body, "stream": True}
        async with server.http.stream("POST", url, json=asked) as stream:
            await anext(stream.aiter_lines())
            episode = stream.headers["x-seedbed-episode"]
            retry = None
            if number % 2:
                retry = asyncio.create_task(server.http.post(url, json=asked, headers=MARK))
                await asyncio.sleep(number / 10_000)
        if retry is None:
            await asyncio.sleep(number / 10_000)
            retry = asyncio.create_task(server.http.post(url, json=asked, headers=MARK))
        answer = await retry
        assert answer.text.endswith("data: [DONE]\n\n"), answer.text
        assert '"error"' not in answer.text
        assert str(number) in answer.text
        assert answer.headers["x-seedbed-episode"] == episode
        return answer.headers.get("x-seedbed-retry")

    async def release() -> None:
        while True:
            server.engine.tokens.release()
            await asyncio.sleep(0.001)

    releasing = asyncio.create_task(release())
    try:
        async with asyncio.timeout(30):
            hows = await asyncio.gather(*(one(number) for number in range(60)))
    finally:
        releasing.cancel()
        server.engine.tokens = asyncio.Semaphore(0)
    assert {None, "joined"} <= set(hows)


async def test_retries_are_kept_apart_by_episode_and_by_key(server: Running) -> None:
    one = (await server.http.post("/v1/episodes")).json()["id"]
    two = (await server.http.post("/v1/episodes")).json()["id"]
    first = await server.ask("who am I", headers={"X-Seedbed-Episode": one})
    other = await server.ask("who am I", headers={"X-Seedbed-Episode": two, **MARK})
    nobody = await server.ask("who am I", headers={"Authorization": "Bearer x", **MARK})
    again = await server.ask("who am I", headers={"X-Seedbed-Episode": one, **MARK})
    ids = [answer.headers["x-seedbed-completion"] for answer in (first, other, nobody, again)]
    assert ids[0] == ids[3]
    assert len(set(ids)) == 3


async def test_failed_answers_are_not_repeated(server: Running) -> None:
    asked = len(server.engine.requests)
    for _ in range(2):
        assert (await server.ask("overflow", headers=MARK)).status_code == 400
    assert len(server.engine.requests) == asked + 2


async def test_the_sdk_gets_one_completion_when_the_network_loses_the_answer(server: Running) -> None:
    lost: list[str] = []

    class Lossy(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            response = await super().handle_async_request(request)
            if not lost:
                await response.aread()
                lost.append(response.headers["x-seedbed-completion"])
                raise httpx.ReadError("made up", request=request)
            return response

    async with httpx.AsyncClient(transport=Lossy()) as http:
        client = openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=2, http_client=http
        )
        answer = await client.chat.completions.create(
            model="toy", messages=[{"role": "user", "content": "mind the gap"}]
        )
    assert [answer.id] == lost
    assert 'seedbed_retries_total{outcome="replayed"}' in (await server.http.get("/metrics")).text


# -- the recordings ----------------------------------------------------------------------------------


def finished(key: tuple[bytes, bytes], size: int = 0, *, delivered: bool = False) -> Recording:
    recording = Recording(key)
    recording.begin(200, {}, "application/json")
    recording.add(b"x" * size)
    recording.end("finished")
    recording.delivered = delivered
    return recording


KEY = (b"client", b"digest")


def test_an_answer_that_nobody_had_is_found_before_running_and_delivered_ones() -> None:
    retries = Retries()
    delivered, running_, lost = finished(KEY, delivered=True), Recording(KEY), finished(KEY)
    for recording in (delivered, running_, lost):
        retries.add(recording)
        if recording.state != "running":
            retries.settle(recording)
    assert retries.find(KEY) is lost
    retries.take(lost)
    assert retries.find(KEY) is running_
    retries.take(running_)
    assert retries.find(KEY) is delivered
    retries.take(delivered)
    assert retries.find(KEY) is None


def test_several_lost_answers_serve_one_retry_each() -> None:
    retries = Retries()
    for _ in range(3):
        retries.add(made := finished(KEY))
        retries.settle(made)
    found = set()
    for _ in range(3):
        recording = retries.find(KEY)
        assert recording is not None
        recording.joined += 1
        found.add(id(recording))
    assert len(found) == 3


def test_memory_is_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    retries = Retries(max_bytes=20_000)
    keys = [(b"c", bytes([index])) for index in range(8)]
    for key in keys:
        retries.add(made := finished(key, 3000))
        retries.settle(made)
    assert retries.kept_bytes <= 20_000
    assert retries.find(keys[0]) is None
    assert retries.find(keys[-1]) is not None
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 601)
    assert retries.find(keys[-1]) is None
    assert retries.kept_bytes == 0


# -- too many ----------------------------------------------------------------------------------------


def test_the_wait_is_that_of_the_requests_before_it_at_the_speed_of_the_last_minute() -> None:
    assert wait_seconds(waiting=60, finished=120, window=60) == 30
    assert wait_seconds(waiting=1, finished=600, window=60) == 1
    assert wait_seconds(waiting=10_000, finished=1, window=60) == 120
    assert wait_seconds(waiting=10, finished=0, window=60) == 5


def test_so_many_may_wait_beside_those_that_run() -> None:
    admission = Admission(max_queued=2, started=0.0)
    for _ in range(6):
        admission.enter(4, now=10.0)
    with pytest.raises(ApiError) as refused:
        admission.enter(4, now=10.0)
    assert refused.value.status == 429
    assert "max_queued_requests: 2" in refused.value.message
    admission.leave(now=12.0)
    admission.enter(4, now=12.0)
    with pytest.raises(ApiError) as refused:
        admission.enter(4, now=20.0)
    assert refused.value.headers["retry-after"] == "120", "one in 20 s, six before it"


async def test_a_full_queue_is_429_and_the_next_place_is_given_away(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    engine = FakeEngine()
    folder = tmp_path_factory.mktemp("queue")
    async with running(folder, engine, max_queued_requests=0, population_size=16) as it:
        waiting = [asyncio.create_task(it.ask(f"wait {i}")) for i in range(16)]
        await it.until(lambda: len(engine.requests) == 16)
        refused = await it.ask("one more")
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 120
        assert (await it.status())["requests"]["in_flight"] == 16
        for _ in range(16):
            engine.tokens.release()
        assert {(await task).status_code for task in waiting} == {200}
        assert (await it.ask("one more")).status_code == 200
