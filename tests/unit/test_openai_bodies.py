"""SGLang's answers in OpenAI's exact shape."""

import copy
import json
import math
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from seedbed_server.engine.openai_bodies import (
    AbortedError,
    Tally,
    clean_completion,
    clean_event,
    clean_response,
    error_body,
)

USAGE: dict[str, Any] = {
    "prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, "reasoning_tokens": 0,
    "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": None,
}  # fmt: skip
CALL: dict[str, Any] = {
    "id": "call_1", "index": 0, "type": "function", "function": {"name": "f", "arguments": "{}"}
}  # fmt: skip
CHAT: dict[str, Any] = {
    "id": "1", "object": "chat.completion", "created": 1, "model": "m", "metadata": {"weight_version": "0"},
    "usage": USAGE,
    "choices": [
        {
            "index": 0, "finish_reason": "tool_calls", "matched_stop": 2, "logprobs": None,
            "message": {
                "role": "assistant", "content": None, "reasoning_content": None, "tool_calls": [CALL]
            },
        }
    ],
}  # fmt: skip


def strictly(kind: Any, body: dict[str, Any]) -> None:
    TypeAdapter(kind).validate_json(json.dumps(body), strict=True, extra="forbid")


def test_a_chat_completion_keeps_only_what_openai_knows_and_is_counted() -> None:
    tally = Tally()
    body = clean_completion(copy.deepcopy(CHAT), tally)
    strictly(ChatCompletion, body)
    assert (tally.prompt_tokens, tally.completion_tokens, tally.cached_tokens) == (7, 3, 4)
    assert tally.finish_reasons == {0: "tool_calls"}
    assert body["choices"][0]["message"]["tool_calls"][0]["id"] == "call_1"


def test_reasoning_stays_where_there_is_some() -> None:
    body = copy.deepcopy(CHAT)
    body["choices"][0]["message"]["reasoning_content"] = "because"
    message = clean_completion(body, Tally())["choices"][0]["message"]
    assert message["reasoning_content"] == "because"


def test_a_chunk_keeps_the_index_of_its_tool_calls() -> None:
    chunk = {
        "id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "usage": None,
        "choices": [
            {
                "index": 1, "finish_reason": None, "matched_stop": None, "logprobs": None,
                "delta": {"role": None, "content": None, "reasoning_content": None, "tool_calls": [CALL]},
            }
        ],
    }  # fmt: skip
    tally = Tally()
    body = clean_completion(copy.deepcopy(chunk), tally)
    strictly(ChatCompletionChunk, body)
    assert body["choices"][0]["delta"]["tool_calls"][0]["index"] == 0
    assert tally.finish_reasons == {}


def test_log_probabilities_of_tokens_that_cannot_come_are_numbers() -> None:
    top = {"token": "b", "bytes": [98], "logprob": None}
    token = {"token": "a", "bytes": [97], "logprob": -math.inf, "top_logprobs": [top]}
    body = copy.deepcopy(CHAT)
    body["choices"][0]["logprobs"] = {"content": [token]}
    strictly(ChatCompletion, clean_completion(body, Tally()))
    assert (token["logprob"], top["logprob"]) == (-9999.0, -9999.0)


def test_a_text_completion_has_an_object_of_alternatives_for_every_token() -> None:
    logprobs = {
        "text_offset": [-1, -1], "tokens": ["a", "b"], "token_logprobs": [-1.0, -2.0],
        "top_logprobs": [None, {"c": None}],
    }  # fmt: skip
    body = {
        "id": "1", "object": "text_completion", "created": 1, "model": "m", "usage": copy.deepcopy(USAGE),
        "choices": [
            {"index": 0, "text": "ab", "finish_reason": "stop", "matched_stop": None, "logprobs": logprobs}
        ],
    }  # fmt: skip
    strictly(Completion, clean_completion(body, Tally()))
    assert logprobs["top_logprobs"] == [{}, {"c": -9999.0}]


def test_an_answer_that_was_given_up_is_an_error_and_no_answer() -> None:
    body = copy.deepcopy(CHAT)
    body["choices"][0]["finish_reason"] = "abort"
    with pytest.raises(AbortedError, match="ask again"):
        clean_completion(body, Tally())


def response(**fields: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 7, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 10,
    }  # fmt: skip
    return {
        "status": "completed",
        "store": False,
        "usage": usage,
        "tools": [{"type": "x", "y": None}],
        **fields,
    }


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "stop"),
        ({"status": "incomplete"}, "length"),
        ({"output": [{"type": "function_call"}]}, "tool_calls"),
    ],
)
def test_a_response_is_counted_and_gives_the_tools_back_as_they_were_given(
    fields: dict[str, Any], reason: str
) -> None:
    tally = Tally()
    asked = {"tools": [{"type": "function", "name": "f"}], "tool_choice": "required", "max_output_tokens": 5}
    body = clean_response(response(**fields), asked, tally)
    assert "store" not in body
    assert {name: body[name] for name in asked} == asked
    assert (tally.prompt_tokens, tally.completion_tokens, tally.cached_tokens) == (7, 3, 4)
    assert tally.finish_reasons == {0: reason}


def test_events_of_a_response_are_cleaned_where_they_hold_it() -> None:
    tally = Tally()
    event = clean_event({"type": "response.created", "response": response(usage=None)}, {}, tally)
    assert event["response"]["tools"] == []
    delta = {"type": "response.output_text.delta", "delta": "a"}
    assert clean_event(dict(delta), {}, tally) == delta


def test_the_end_of_a_calls_arguments_has_no_name_as_openais_has_none() -> None:
    event = {
        "type": "response.function_call_arguments.done", "item_id": "fc_1", "output_index": 0,
        "sequence_number": 5, "arguments": "{}", "name": "f",
    }  # fmt: skip
    kept = clean_event(dict(event), {}, Tally())
    assert kept == {name: value for name, value in event.items() if name != "name"}


def test_errors_have_openais_shape_and_an_overflow_its_code() -> None:
    assert error_body(404, "no", None)["error"]["type"] == "not_found_error"
    assert error_body(500, "", "p")["error"] == {
        "message": "Internal Server Error", "type": "server_error", "param": "p", "code": None
    }  # fmt: skip
    overflow = "The input (900 tokens) is longer than the model's context length (512 tokens)."
    assert error_body(400, overflow, None)["error"]["code"] == "context_length_exceeded"
