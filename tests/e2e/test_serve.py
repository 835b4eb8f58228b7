"""A whole server with the real engine, through the unmodified openai package.

The tests share one server and run in the order of this file: what ends or kills things comes last.
"""

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import time
from typing import Any

import httpx
import openai
import psutil
import pytest

from tests.e2e.served import Served

pytestmark = pytest.mark.engine

MESSAGES: Any = [{"role": "user", "content": "What is the capital of France?"}]


# -- completions -------------------------------------------------------------------------------------


def test_a_completion_names_its_episode_and_member(served: Served) -> None:
    answer = served.ask()
    about = answer.seedbed
    assert answer.model == "toy-llama"
    assert answer.usage.completion_tokens == 8
    assert answer.id == about["completion_id"]
    assert (about["version"], about["population"], about["member"]) == (0, 0, 0)
    assert about["sigma"] == 0.02


def test_the_live_model_is_unperturbed_and_repeats_itself(served: Served) -> None:
    answers = [served.ask(model="toy-llama:live", logprobs=True) for _ in range(2)]
    assert answers[0].model == "toy-llama:live"
    assert answers[0].seedbed["member"] is None
    texts = [answer.choices[0].message.content for answer in answers]
    assert texts[0] == texts[1]
    explored = served.ask(logprobs=True)
    live, perturbed = ([t.logprob for t in a.choices[0].logprobs.content] for a in (answers[0], explored))
    assert live != perturbed


def test_an_episode_keeps_its_member_for_all_its_turns(served: Served) -> None:
    first = served.ask().seedbed
    turns = [served.ask("And of Spain?", extra_body={"seedbed": {"episode_id": first["episode_id"]}})]
    turns.append(served.ask("And?", extra_headers={"X-Seedbed-Episode": first["episode_id"]}))
    for turn in turns:
        assert {name: turn.seedbed[name] for name in ("episode_id", "member", "seed")} == {
            name: first[name] for name in ("episode_id", "member", "seed")
        }
    repeated = served.ask(extra_body={"seedbed": {"episode_id": first["episode_id"]}})
    assert repeated.seedbed["member"] == first["member"]


def test_streaming_gives_the_same_text_piece_by_piece_with_usage(served: Served) -> None:
    episode = {"seedbed": {"episode_id": served.ask().seedbed["episode_id"]}}
    whole = served.ask(extra_body=episode, max_tokens=24)
    with served.openai() as client:
        stream = client.chat.completions.create(
            model="toy-llama", messages=MESSAGES, max_tokens=24, temperature=0, stream=True,
            stream_options={"include_usage": True}, extra_body=episode,
        )  # fmt: skip
        chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert len([chunk for chunk in chunks if chunk.choices]) > 3
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 24
    assert {chunk.model for chunk in chunks} == {"toy-llama"}
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_first_chunk_comes_before_the_last_token_exists(served: Served) -> None:
    with served.openai() as client:
        begin = time.monotonic()
        stream = client.chat.completions.create(
            model="toy-llama", messages=MESSAGES, max_tokens=300, temperature=0, stream=True,
            extra_body={"ignore_eos": True},
        )  # fmt: skip
        next(iter(stream))
        first = time.monotonic() - begin
        for _ in stream:
            pass
        assert first < 0.5 * (time.monotonic() - begin)


async def test_async_clients_at_once_are_kept_apart(served: Served) -> None:
    async with served.openai_async() as client:

        async def one(index: int) -> tuple[dict[str, Any], str]:
            answer: Any = await client.chat.completions.create(
                model="toy-llama", messages=MESSAGES, max_tokens=8, temperature=0, stream=False,
                extra_body={"seedbed": {"group": f"g{index % 2}"}},
            )  # fmt: skip
            return answer.seedbed, answer.choices[0].message.content

        async def streamed() -> tuple[dict[str, Any], str]:
            stream = await client.chat.completions.create(
                model="toy-llama", messages=MESSAGES, max_tokens=8, temperature=0, stream=True
            )
            chunks: list[Any] = [chunk async for chunk in stream]
            return chunks[0].seedbed, "".join(c.choices[0].delta.content or "" for c in chunks)

        answers = await asyncio.gather(*(one(i) for i in range(8)), *(streamed() for _ in range(8)))
    by_member: dict[int, set[str]] = {}
    for about, text in answers:
        by_member.setdefault(about["member"], set()).add(text)
    assert set(by_member) == {0, 1, 2, 3}
    assert all(len(texts) == 1 for texts in by_member.values()), "one member, one answer at temperature 0"
    assert len({text for texts in by_member.values() for text in texts}) > 1


def test_several_choices_come_from_one_member(served: Served) -> None:
    answer = served.ask(n=3, temperature=1.0)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]


def test_models_are_the_truth_of_what_is_loaded(served: Served) -> None:
    with served.openai() as client:
        models: list[Any] = list(client.models.list())
    assert [model.id for model in models] == ["toy-llama", "toy-llama:live"]
    assert models[0].seedbed["context_length"] == 512


def test_a_client_that_hangs_up_stops_its_generation_within_a_second(served: Served) -> None:
    body = {"model": "toy-llama", "messages": MESSAGES, "max_tokens": 400, "ignore_eos": True, "stream": True}
    with served.http() as client, client.stream("POST", "/v1/chat/completions", json=body) as stream:
        completion = stream.headers["x-seedbed-completion"]
        next(stream.iter_lines())

    def row() -> tuple[str, int | None]:
        with sqlite3.connect(f"file:{served.store}?mode=ro", uri=True) as store:
            query = "SELECT status, completion_tokens FROM completions WHERE id = ?"
            found: tuple[str, int | None] = store.execute(query, (completion,)).fetchone()
            return found

    served.wait_until(lambda: row()[0] == "cancelled", 1.0)
    metrics = httpx.get(f"{served.url}/metrics").text
    assert "seedbed_requests_in_flight 0.0" in metrics


# -- bad inputs --------------------------------------------------------------------------------------


def test_an_unknown_model_is_refused_by_name(served: Served) -> None:
    with pytest.raises(openai.NotFoundError, match=r"'gpt-9' is not served here; use 'toy-llama'") as error:
        served.ask(model="gpt-9")
    assert error.value.code == "model_not_found"


@pytest.mark.parametrize("streaming", [False, True])
def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(served: Served, streaming: bool) -> None:
    with pytest.raises(openai.BadRequestError, match=r"\d{3,} tokens.*512 tokens") as error:
        served.ask("word " * 2000, stream=streaming)
    assert error.value.type == "invalid_request_error"


@pytest.mark.parametrize(
    ("field", "value"),
    [("extra_key", "sb1|0|1|0x1p-3"), ("lora_path", "a"), ("rid", "r"), ("custom_params", {"a": 1})],
)
def test_the_engines_own_fields_are_refused(served: Served, field: str, value: object) -> None:
    with pytest.raises(openai.BadRequestError, match=field):
        served.ask(extra_body={field: value})


def test_bad_sampling_values_are_400_with_the_field(served: Served) -> None:
    for field, value in (("temperature", -1), ("top_p", 2), ("max_tokens", -5), ("messages", "text")):
        body = {"model": "toy-llama", "messages": MESSAGES, field: value}
        with served.http() as client:
            response = client.post("/v1/chat/completions", json=body)
        assert response.status_code == 400, response.text
        assert field in response.json()["error"]["message"]


def test_bad_rewards_are_refused(served: Served) -> None:
    episode = served.ask().seedbed["episode_id"]
    assert served.reward(episode_id="ep_nobody", reward=1.0).status_code == 404
    with served.http() as client:
        response = client.post("/v1/feedback", content=f'{{"episode_id": "{episode}", "reward": NaN}}')
    assert response.status_code == 400
    assert "reward: nan" in response.json()["error"]["message"]


def test_a_second_server_on_the_same_store_is_refused_before_any_engine_starts(served: Served) -> None:
    result = subprocess.run(served.command(0), capture_output=True, text=True, timeout=120)
    assert result.returncode == 2
    assert "in use by process" in result.stderr
    assert "--store" in result.stderr


# -- learning ----------------------------------------------------------------------------------------


def test_rewards_move_the_weights_and_every_update_is_accounted_for(served: Served) -> None:
    before = served.status()
    live = served.ask(model="toy-llama:live", logprobs=True).choices[0].logprobs.content[0].logprob
    served.learn(3)
    status = served.status()
    assert status["version"] == before["version"] + 3
    assert status["digest"] != before["digest"]
    with served.http() as client:
        updates = client.get("/v1/updates").json()["data"]
    assert [update["version"] for update in updates] == [1, 2, 3]
    assert len({update["digest"] for update in updates} | {before["digest"]}) == 4
    assert updates[-1]["digest"] == status["digest"]
    for update in updates:
        assert (update["reward_mean"], update["members"], update["best_member"]) == (1.5, 4, 3)
        assert update["seconds"] > 0
        assert update["record_bytes"] < 500
    after: Any = served.ask(model="toy-llama:live", logprobs=True)
    assert after.seedbed["version"] == status["version"]
    assert after.choices[0].logprobs.content[0].logprob != live


def test_a_completion_that_runs_across_an_update_says_so(served: Served) -> None:
    status = served.status()
    with served.openai() as client:
        stream = client.chat.completions.create(
            model="toy-llama:live", messages=MESSAGES, max_tokens=450, stream=True, temperature=0,
            extra_body={"ignore_eos": True},
        )  # fmt: skip
        chunks: list[Any] = [next(iter(stream))]
        served.learn(1)
        chunks += list(stream)
    assert chunks[0].seedbed["version"] == status["version"]
    finished = [chunk for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]
    assert len(chunks) > 100
    moved = finished[-1].seedbed.get("last_version")
    assert moved in (None, status["version"] + 1), "None only where the stream was faster than the update"


def test_an_episode_that_is_one_version_behind_counts_and_one_that_is_two_behind_is_late(
    served: Served,
) -> None:
    older = served.ask().seedbed
    served.learn(1)
    stray = served.ask().seedbed
    served.learn(1)
    late = served.reward(episode_id=older["episode_id"], reward=1.0).json()
    assert (late["result"], late["version"]) == ("late", served.status()["version"] - 2)
    stale = served.reward(episode_id=stray["episode_id"], reward=1.0).json()
    assert (stale["result"], stale["version"]) == ("accepted", served.status()["version"] - 1)
    assert served.status()["population"]["stale_episodes"] == 1


# -- death and resurrection --------------------------------------------------------------------------


def test_a_killed_engine_is_503_and_comes_back_with_an_equal_digest(served: Served) -> None:
    before, old = served.status(), served.engine_pid
    below = psutil.Process(old).children(recursive=True)
    known = served.ask().seedbed
    with served.openai() as client:
        stream = client.chat.completions.create(
            model="toy-llama", messages=MESSAGES, max_tokens=450, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        psutil.Process(old).send_signal(signal.SIGKILL)
        with pytest.raises((openai.APIError, httpx.HTTPError)):
            for _ in stream:
                pass
    with pytest.raises(openai.APIStatusError) as error:
        served.ask()
    assert error.value.status_code == 503
    assert 0 < int(error.value.response.headers["retry-after"]) <= 120
    assert served.reward(episode_id=known["episode_id"], reward=0.5).json()["result"] == "accepted"
    served.wait_until(lambda: served.status()["engine"] == "ready", 300)
    after = served.status()
    assert served.engine_pid != old
    assert (after["version"], after["digest"]) == (before["version"], before["digest"])
    assert not any(process.is_running() for process in below)
    again = served.ask(extra_body={"seedbed": {"episode_id": known["episode_id"]}}).seedbed
    assert (again["member"], again["seed"]) == (known["member"], known["seed"])


def test_a_killed_server_goes_on_with_version_digest_population_and_rewards(served: Served) -> None:
    served.learn(1)
    known = served.ask().seedbed
    served.reward(episode_id=known["episode_id"], reward=0.25, reward_id="before the kill")
    before = served.status()
    orphan = psutil.Process(served.engine_pid)
    served.kill()
    assert orphan.is_running()
    served.start()
    after = served.status()
    for name in ("version", "digest", "population", "sigma"):
        assert after[name] == before[name]
    assert not orphan.is_running(), "an engine was left behind"
    again = {"episode_id": known["episode_id"], "reward": 0.25, "reward_id": "before the kill"}
    assert served.reward(**again).json()["result"] == "duplicate"
    turn = served.ask(extra_body={"seedbed": {"episode_id": known["episode_id"]}}).seedbed
    assert (turn["member"], turn["seed"], turn["version"]) == (
        known["member"],
        known["seed"],
        before["version"],
    )
    served.learn(1)
    assert served.status()["version"] == before["version"] + 1


def test_ctrl_c_twice_ends_everything_and_leaves_no_process(served: Served) -> None:
    before = served.status()
    processes = served.processes()
    assert len(processes) > 2
    assert served.interrupt(times=2) == 0
    psutil.wait_procs(processes, timeout=10)
    assert not any(process.is_running() for process in processes)
    (served.folder / "before.json").write_text(json.dumps(before))


def test_replay_on_a_fresh_engine_has_the_digest_that_was_served(served: Served) -> None:
    before = json.loads((served.folder / "before.json").read_text())
    program = "from seedbed_server.launch import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", program, "replay", "--store", str(served.store), "--model", str(served.model)],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(before["digest"]) == 2
    assert "\nequal" in result.stdout
