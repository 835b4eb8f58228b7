"""Fields of a body that are refused by name, because passing over them in silence would change an answer."""

from __future__ import annotations

from typing import Any

from seedbed_server.gateway.errors import ApiError, bad_request
from seedbed_server.gateway.spoken import shown

__all__ = ["INTERNAL", "check_tools", "refuse"]

# SGLang's own inside: cache namespaces, adapters, sessions, code, raw tensors.
INTERNAL = frozenset(
    [
        "bootstrap_host",
        "bootstrap_pair_key",
        "bootstrap_port",
        "bootstrap_room",
        "cache_salt",
        "custom_labels",
        "custom_logit_processor",
        "custom_params",
        "data_parallel_rank",
        "decode_tp_size",
        "disagg_prefill_dp_rank",
        "extra_key",
        "images_config",
        "input_embeds",
        "input_ids",
        "lora_path",
        "max_dynamic_patch",
        "min_dynamic_patch",
        "mm_processor_kwargs",
        "priority",
        "request_id",
        "return_cached_tokens_details",
        "return_flat_raw_output_top_logprobs",
        "return_flat_raw_top_logprobs_b64",
        "return_hidden_states",
        "return_input_ids_in_sglext",
        "return_meta_info",
        "return_output_ids_in_sglext",
        "return_prompt_token_ids",
        "return_routed_experts",
        "return_sampling_mask",
        "return_spec_tokens_details",
        "return_token_ids",
        "rid",
        "routed_dp_rank",
        "routed_experts_start_len",
        "sampling_logprobs_mode",
        "session_id",
        "session_params",
        "task",
        "use_audio_in_video",
        "video_config",
        "watermark",
    ]
)
# OpenAI's fields that SGLang does not know, and the values that ask for nothing special.
_UNSUPPORTED: dict[str, dict[str, tuple[Any, ...]]] = {
    "/v1/chat/completions": {
        "audio": (),
        "function_call": (),
        "functions": (),
        "modalities": (["text"],),
        "verbosity": ("medium",),
        "web_search_options": (),
    },
    "/v1/completions": {"best_of": (1,), "suffix": ("",)},
    "/v1/responses": {
        "background": (False,),
        "context_management": (),
        "conversation": (),
        "max_tool_calls": (),
        "n": (1,),
        "previous_response_id": (),
        "prompt": (),
        "truncation": ("disabled",),
    },
}
# What shapes an answer on one route, and on another one would be passed over.
_CHAT = {"messages", "max_completion_tokens", "reasoning_effort", "response_format", "continue_final_message"}
_TEXT = {"prompt", "echo", "suffix", "best_of"}
_RESPONSE = {
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "previous_response_id",
    "text",
    "truncation",
}
_SAMPLING = {
    "ebnf",
    "ignore_eos",
    "json_schema",
    "logit_bias",
    "logprobs",
    "max_tokens",
    "min_tokens",
    "no_stop_trim",
    "regex",
    "seed",
    "skip_special_tokens",
    "stop_regex",
    "stop_token_ids",
}
_NOWHERE = {"bad_words", "context", "contexts"}
_TOOLS = {"function_call", "functions", "parallel_tool_calls", "tool_choice", "tools"}
_ELSEWHERE: dict[str, set[str]] = {
    "/v1/chat/completions": _TEXT | _RESPONSE | _NOWHERE | {"json_schema"},
    "/v1/completions": (_CHAT | _RESPONSE | _NOWHERE | _TOOLS | {"top_logprobs"}) - {"response_format"},
    "/v1/responses": _CHAT | _TEXT | _SAMPLING | _NOWHERE | {"function_call", "functions"},
}
_LOG_PROBABILITIES = "message.output_text.logprobs"
_WHY = {
    "background": "nothing is kept to be asked for later",
    "best_of": "every choice is returned; use n",
    "conversation": "nothing is kept between responses; send the conversation as input",
    "previous_response_id": "nothing is kept between responses; send the conversation as input",
    "truncation": "prompts are never cut",
}


def refuse(route: str, values: dict[str, Any]) -> None:
    """Raises ApiError 400 for the first field that cannot be set."""
    unsupported = _UNSUPPORTED[route]
    for name, value in values.items():
        if value is None:
            continue
        if name in INTERNAL:
            raise bad_request(f"{name}: it belongs to the engine and cannot be set; leave it out", param=name)
        if name in unsupported and value not in unsupported[name]:
            if name == "best_of" and value == values.get("n"):
                continue
            raise _cannot(name)
        if name in _ELSEWHERE[route] and name not in unsupported:
            raise bad_request(f"{name}: {route} has no such field; leave it out", param=name)
    verbosity = (values.get("text") or {}).get("verbosity") if isinstance(values.get("text"), dict) else None
    if route == "/v1/responses" and verbosity not in (None, "medium"):
        raise _cannot("text.verbosity")
    included = values.get("include") if route == "/v1/responses" and values.get("stream") is True else None
    if isinstance(included, list) and _LOG_PROBABILITIES in included:
        raise bad_request(
            f"include: {_LOG_PROBABILITIES!r} is not there in streams; leave it out, or ask without stream",
            param="include",
        )


def check_tools(values: dict[str, Any]) -> None:
    """Raises ApiError 400 for a `tool_choice` that asks for a tool that is not there."""
    choice, tools = values.get("tool_choice"), values.get("tools") or []
    if choice in (None, "auto", "none"):
        return
    if not tools:
        raise bad_request(
            f"tools: it is empty, and tool_choice ({shown(choice)}) asks for one; send it, or leave "
            "tool_choice out",
            param="tools",
        )
    if isinstance(choice, dict) and choice.get("type") in ("function", "custom"):
        asked = (choice.get("function") or choice).get("name")
        names = [(tool.get("function") or tool).get("name") for tool in tools]
        if asked not in names:
            known = ", ".join(map(str, names))
            raise bad_request(
                f"tool_choice: {shown(asked)} is not among the tools; use one of {known}", param="tool_choice"
            )


def _cannot(name: str) -> ApiError:
    why = f" ({_WHY[name]})" if name in _WHY else ""
    return bad_request(f"{name}: this server cannot do it{why}; leave it out", param=name)
