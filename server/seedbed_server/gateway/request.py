"""What a client may ask: our fields are taken out, names are put right, what is not ours to give is
refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from seedbed_server.gateway.errors import ApiError, bad_request
from seedbed_server.gateway.leases import Wish

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LIVE", "Prepared", "prepare"]

LIVE = ":live"
HEADER = "x-seedbed-episode"
MAX_CHOICES = 128
MAX_TOKENS = 2**31 - 1
MAX_TEXT = 256

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
# OpenAI's, and SGLang would pass over them in silence although they change what an answer is.
UNSUPPORTED = frozenset({"audio", "function_call", "functions", "web_search_options"})


@dataclass(frozen=True)
class Prepared:
    """A request that may go to the engine."""

    wish: Wish
    body: bytes
    model: str
    """As the client wrote it; answers say the same."""
    stream: bool
    choices: int


def prepare(body: bytes, headers: Mapping[str, str], model: str) -> Prepared:
    """Checks a body and makes the engine's of it. Raises ApiError 400 or 404 naming field, value and
    remedy.
    """
    try:
        values = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"body: it is not JSON ({error}); send one JSON object") from None
    if not isinstance(values, dict):
        raise bad_request("body: it is no JSON object; send one with `model` and `messages`")
    asked = values.get("model")
    if not isinstance(asked, str) or not asked:
        raise bad_request(f"model: {asked!r} is not a model name; use {model!r}", param="model")
    if asked not in (model, model + LIVE):
        raise ApiError(
            404,
            f"model: {asked!r} is not served here; use {model!r}, or {model + LIVE!r} for the live one",
            param="model",
            code="model_not_found",
        )
    _refuse(values)
    episode_id, group = _episode(values.pop("seedbed", None), headers.get(HEADER))
    stream = values.get("stream") or False
    if not isinstance(stream, bool):
        raise bad_request(f"stream: {stream!r} is not a boolean; use true or false", param="stream")
    choices = _count(values, "n", MAX_CHOICES) or 1
    for name in ("max_tokens", "max_completion_tokens"):
        _count(values, name, MAX_TOKENS)
    values["model"] = model
    wish = Wish(asked != model, episode_id, group)
    return Prepared(wish, orjson.dumps(values), asked, stream, choices)


def _count(values: dict[str, Any], name: str, most: int) -> int | None:
    """A whole number of 1 to `most`; None where it is not given."""
    value = values.get(name)
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most
    ):
        raise bad_request(f"{name}: {value!r} cannot be used; use 1 to {most}", param=name)
    return value


def _refuse(values: dict[str, Any]) -> None:
    for name in values:
        if values[name] is None:
            continue
        if name in INTERNAL:
            raise bad_request(f"{name}: it belongs to the engine and cannot be set; leave it out", param=name)
        if name in UNSUPPORTED or (name == "modalities" and values[name] != ["text"]):
            raise bad_request(f"{name}: this server cannot do it; leave it out", param=name)


def _episode(extras: object, header: str | None) -> tuple[str | None, str | None]:
    if extras is None:
        extras = {}
    if not isinstance(extras, dict):
        raise bad_request(
            "seedbed: it is no object; send episode_id, group, both or nothing", param="seedbed"
        )
    for name, value in extras.items():
        if name not in ("episode_id", "group"):
            raise bad_request(
                f"seedbed.{name}: there is no such field; use episode_id or group", param=f"seedbed.{name}"
            )
        if value is not None and not _is_text(value):
            raise bad_request(
                f"seedbed.{name}: {str(value)[:80]!r} cannot be used; "
                f"send a text of 1 to {MAX_TEXT} characters",
                param=f"seedbed.{name}",
            )
    episode_id = extras.get("episode_id")
    if header is not None and not _is_text(header):
        raise bad_request(
            f"{HEADER}: {header[:80]!r} cannot be used; send a text of 1 to {MAX_TEXT} characters",
            param=HEADER,
        )
    if episode_id is not None and header is not None and episode_id != header:
        raise bad_request(
            f"episode_id: the body says {episode_id!r} and the header {HEADER} says {header!r}; "
            "send one of them",
            param="seedbed.episode_id",
        )
    return episode_id or header, extras.get("group")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= MAX_TEXT
