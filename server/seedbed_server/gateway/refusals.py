"""Fields of a body that are refused by name, because passing over them in silence would change an answer."""

from __future__ import annotations

from typing import Any

from seedbed_server.gateway.errors import ApiError, bad_request

__all__ = ["INTERNAL", "refuse"]

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
    verbosity = (values.get("text") or {}).get("verbosity") if isinstance(values.get("text"), dict) else None
    if route == "/v1/responses" and verbosity not in (None, "medium"):
        raise _cannot("text.verbosity")


def _cannot(name: str) -> ApiError:
    why = f" ({_WHY[name]})" if name in _WHY else ""
    return bad_request(f"{name}: this server cannot do it{why}; leave it out", param=name)
