"""Text completions, responses, and the OpenAPI document of everything."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import jsonschema
import openai
import pytest
import pytest_asyncio

from tests.unit.gateway_server import Running, running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with running(tmp_path_factory.mktemp("routes"), population_size=8, episodes_per_member=1000) as it:
        yield it


FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


# -- text completions --------------------------------------------------------------------------------


async def test_a_text_completion_is_answered_by_the_member_of_its_episode(server: Running) -> None:
    answer: Any = await server.openai.completions.create(model="toy", prompt="once upon a time", n=2)
    assert answer.id.startswith("cmpl-")
    assert (answer.model, answer.choices[1].text) == ("toy", "once upon a time")
    body, address = server.engine.requests[-1]
    assert address == (int(answer.seedbed["seed"]), answer.seedbed["sigma"])
    assert body == {"model": "toy", "prompt": "once upon a time", "n": 2}
    posted = await server.reward(completion_id=answer.id, reward=1.0)
    assert posted.json()["member"] == answer.seedbed["member"]


async def test_a_text_completion_streams_and_ends_as_openais_do(server: Running) -> None:
    stream = await server.openai.completions.create(model="toy:live", prompt="a b c", stream=True)
    chunks: list[Any] = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks) == "abc"
    assert {(chunk.id, chunk.model) for chunk in chunks} == {(chunks[0].seedbed["completion_id"], "toy:live")}
    assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt.1"),
        ({"prompt": [-1]}, "prompt.0"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "best_of": 3}, "best_of"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "logprobs": 9}, "logprobs"),
        ({"prompt": "a", "extra_key": "k"}, "extra_key"),
        ({"prompt": "a", "messages": []}, "messages"),
        ({"prompt": "a", "tools": []}, "tools"),
        ({"prompt": "a", "top_logprobs": 2}, "top_logprobs"),
        ({"prompt": "a", "max_output_tokens": 2}, "max_output_tokens"),
        ({}, "prompt"),
    ],
)
async def test_bad_text_completions_are_refused_by_name(
    server: Running, fields: dict[str, Any], param: str
) -> None:
    response = await server.http.post("/v1/completions", json={"model": "toy", **fields})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"].startswith(param.split(".")[0])
    assert param.split(".")[0] in response.json()["error"]["message"]


# -- responses ---------------------------------------------------------------------------------------


async def test_a_response_carries_its_episode_in_headers_and_body(server: Running) -> None:
    raw = await server.openai.responses.with_raw_response.create(model="toy", input="good morning")
    answer: Any = raw.parse()
    assert answer.id.startswith("resp_")
    assert answer.id == raw.headers["x-seedbed-completion"] == answer.seedbed["completion_id"]
    assert (answer.model, answer.output_text) == ("toy", "good morning")
    assert server.engine.requests[-1][1] == (int(answer.seedbed["seed"]), answer.seedbed["sigma"])


async def test_a_streamed_response_is_marked_where_it_begins_and_ends(server: Running) -> None:
    stream = await server.openai.responses.create(model="toy:live", input="a b c", stream=True)
    events: list[Any] = [event async for event in stream]
    assert [event.type for event in events] == [
        "response.created", *["response.output_text.delta"] * 3, "response.completed"
    ]  # fmt: skip
    first, last = events[0].response, events[-1].response
    assert first.id == last.id == events[1].seedbed["completion_id"]
    assert (last.model, last.output_text) == ("toy:live", "a b c")
    assert last.seedbed["member"] is None


async def test_a_response_goes_on_with_the_items_of_the_one_before(server: Running) -> None:
    items: list[Any] = [{"role": "user", "content": "first item"}]
    first: Any = await server.openai.responses.create(model="toy", instructions="be kind", input=items)
    items += [item.model_dump(exclude_none=True) for item in first.output]
    items += [{"role": "user", "content": "second item"}]
    second: Any = await server.openai.responses.create(model="toy", instructions="be kind", input=items)
    assert second.seedbed["episode_id"] == first.seedbed["episode_id"]
    other: Any = await server.openai.responses.create(model="toy", instructions="be rude", input=items)
    assert other.seedbed["episode_id"] != first.seedbed["episode_id"]


async def test_a_response_that_breaks_off_ends_with_an_error_event(server: Running) -> None:
    stream = await server.openai.responses.create(model="toy", input="now break it", stream=True)
    with pytest.raises(openai.APIError, match="lost in the middle"):
        _ = [event async for event in stream]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"background": True}, "background"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"truncation": "auto"}, "truncation"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"tools": [{"type": "web_search"}]}, "tools.0"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"metadata": {"seedbed.episode": "x"}}, "metadata.seedbed.episode"),
        ({"context": "web"}, "context"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"include": ["message.output_text.logprobs"], "stream": True}, "include"),
        ({"seed": 7}, "seed"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": []}, "messages"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"regex": "a"}, "regex"),
        ({"tool_choice": "required"}, "tools"),
        ({"tool_choice": {"type": "function", "name": "g"}, "tools": [FUNCTION]}, "tool_choice"),
    ],
)
async def test_what_a_response_cannot_do_is_refused_by_name(
    server: Running, fields: dict[str, Any], param: str
) -> None:
    response = await server.http.post("/v1/responses", json={"model": "toy", "input": "a", **fields})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


async def test_fields_that_ask_for_nothing_special_pass(server: Running) -> None:
    fields = {
        "background": False, "truncation": "disabled", "store": True, "text": {"format": {"type": "text"}},
        "previous_response_id": None, "include": ["message.output_text.logprobs"],
    }  # fmt: skip
    response = await server.http.post("/v1/responses", json={"model": "toy", "input": "a", **fields})
    assert response.status_code == 200


async def test_whole_numbers_reach_the_engine_as_such(server: Running) -> None:
    """Answers repeat some of them, and OpenAI's are integers."""
    for route, fields in (
        ("responses", {"input": "a", "max_output_tokens": 607.0, "top_logprobs": 2.0}),
        ("completions", {"prompt": [1.0, 2], "max_tokens": 5.0, "n": 1.0, "seed": -3.0}),
        ("completions", {"prompt": [[1.0], [2]], "logprobs": 2.0}),
        ("chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 5.0}),
    ):
        body: dict[str, Any] = {"model": "toy", **fields}  # type: ignore[dict-item]
        response = await server.http.post(f"/v1/{route}", json=body)
        assert response.status_code == 200, response.text
        assert ".0" not in json.dumps(server.engine.requests[-1][0])


# -- the document ------------------------------------------------------------------------------------


async def document(server: Running) -> dict[str, Any]:
    found: dict[str, Any] = (await server.http.get("/openapi.json")).json()
    return found


async def test_every_route_tells_its_body_its_answers_and_its_errors(server: Running) -> None:
    paths = (await document(server))["paths"]
    assert {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/episodes"} <= set(paths)
    assert "/v1/episodes/{id}/v1/chat/completions" in paths
    for path, operations in paths.items():
        for method, operation in operations.items():
            assert operation["summary"], path
            assert "422" not in operation["responses"]
            for answer in operation["responses"].values():
                contents = answer["content"].values()
                assert all(c.get("schema") or c.get("itemSchema") for c in contents), path
            if method == "post" and path not in ("/v1/learning/resume", "/v1/learning/step"):
                assert operation["requestBody"]["content"]["application/json"]["schema"]


async def test_the_document_names_the_models_that_are_served(server: Running) -> None:
    schemas = (await document(server))["components"]["schemas"]
    for name in ("ChatBody", "CompletionBody", "ResponseBody"):
        assert schemas[name]["properties"]["model"]["enum"] == ["toy", "toy:live"]


async def test_every_reference_of_the_document_leads_somewhere(server: Running) -> None:
    found = await document(server)
    text = json.dumps(found)
    for part in text.split('"$ref": "')[1:]:
        name = part.partition('"')[0].removeprefix("#/components/schemas/")
        assert name in found["components"]["schemas"]


async def test_what_is_answered_is_what_the_document_says(server: Running) -> None:
    found = await document(server)
    episode = await server.http.post("/v1/episodes", json={"group": "g"})
    path = f"/v1/episodes/{episode.json()['id']}"
    chat = await server.ask()
    answers: list[tuple[str, str, httpx.Response]] = [
        ("post", "/v1/episodes", episode),
        ("get", "/v1/episodes/{id}", await server.http.get(path)),
        ("get", "/v1/episodes/{id}", await server.http.get("/v1/episodes/ep_x")),
        ("delete", "/v1/episodes/{id}", await server.http.delete(path)),
        ("post", "/v1/chat/completions", chat),
        ("post", "/v1/chat/completions", await server.ask(model="x")),
        ("post", "/v1/chat/completions", await server.ask(headers={"X-Seedbed-Episode": path[13:]})),
        ("get", "/v1/models", await server.http.get("/v1/models")),
        ("get", "/v1/models/{model}", await server.http.get("/v1/models/toy:live")),
        ("post", "/v1/feedback", await server.reward(completion_id=chat.json()["id"], reward=1)),
        ("post", "/v1/feedback", await server.reward(episode_id="ep_x", reward=1)),
        ("get", "/v1/status", await server.http.get("/v1/status")),
        ("get", "/v1/updates", await server.http.get("/v1/updates")),
        ("get", "/readyz", await server.http.get("/readyz")),
    ]
    for method, route, response in answers:
        documented = found["paths"][route][method]["responses"][str(response.status_code)]
        schema = documented["content"]["application/json"]["schema"]
        jsonschema.validate(response.json(), {**schema, "components": found["components"]})
        for name in documented.get("headers", {}):
            assert name in response.headers
