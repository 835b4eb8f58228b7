"""Generation for our own protocol: text or token ids in, pieces with log-probabilities out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from seedbed.v1 import engine_pb2

__all__ = ["GenerateError", "generate"]


class GenerateError(ValueError):
    """A request that cannot be answered; the message names the field, the value and the remedy."""


async def generate(
    engine: Any, request: engine_pb2.GenerateRequest, namespace: str
) -> AsyncGenerator[engine_pb2.GenerateResponse, None]:
    """Pieces of one answer; the last one has `finish` (without versions, which the caller knows).

    Closing the iterator early stops the generation. Raises GenerateError.
    """
    from sglang.srt.managers.io_struct import GenerateReqInput

    sampling = request.sampling
    parameters: dict[str, Any] = {
        "temperature": sampling.temperature if sampling.HasField("temperature") else 0.0,
        "max_new_tokens": sampling.max_new_tokens if sampling.HasField("max_new_tokens") else 128,
        "ignore_eos": sampling.ignore_eos,
    }
    if sampling.HasField("top_p"):
        parameters["top_p"] = sampling.top_p
    if sampling.stop:
        parameters["stop"] = list(sampling.stop)
    if sampling.HasField("seed"):
        parameters["sampling_seed"] = sampling.seed
    from_position = request.prompt_logprobs_from if request.HasField("prompt_logprobs_from") else -1
    match request.WhichOneof("prompt"):
        case "text":
            prompt: dict[str, Any] = {"text": request.text}
        case "token_ids":
            prompt = {"input_ids": _ids(engine, request.token_ids.ids)}
        case _:
            raise GenerateError("prompt: it is missing; give text or token_ids")
    internal = GenerateReqInput(
        **prompt,
        sampling_params=parameters,
        stream=True,
        return_logprob=request.logprobs or from_position >= 0,
        logprob_start_len=from_position,
        extra_key=namespace,
    )
    text, count = "", 0
    answers = engine.tokenizer_manager.generate_request(internal, None)
    try:
        async for answer in answers:
            meta = answer["meta_info"]
            ids = answer.get("output_ids") or []
            piece = engine_pb2.GenerateResponse(text=answer.get("text", "")[len(text) :], ids=ids[count:])
            if request.logprobs:
                new = (meta.get("output_token_logprobs") or [])[count:]
                piece.logprobs.extend(_logprob(value, token) for value, token, _ in new)
            text, count = answer.get("text", ""), len(ids)
            reason = meta.get("finish_reason")
            if reason:
                piece.finish.reason = reason["type"]
                piece.finish.prompt_tokens = meta["prompt_tokens"]
                piece.finish.completion_tokens = meta["completion_tokens"]
                piece.finish.cached_tokens = meta.get("cached_tokens") or 0
                if from_position >= 0:
                    inputs = meta.get("input_token_logprobs") or []
                    piece.finish.prompt_logprobs.extend(_logprob(value, token) for value, token, _ in inputs)
            yield piece
    except ValueError as error:
        raise GenerateError(str(error)) from error
    finally:
        await answers.aclose()


def _ids(engine: Any, ids: Any) -> list[int]:
    vocabulary = engine.tokenizer_manager.model_config.vocab_size
    if not ids:
        raise GenerateError("token_ids: it is empty; give at least one token")
    for token in ids:
        if token >= vocabulary:
            raise GenerateError(
                f"token_ids: {token} is outside the vocabulary of {vocabulary}; use the model's tokens"
            )
    return list(ids)


def _logprob(value: float | None, token: int) -> engine_pb2.TokenLogprob:
    return engine_pb2.TokenLogprob(id=token, logprob=value)
