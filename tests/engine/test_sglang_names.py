"""Every name of SGLang that we touch; an upgrade that moves one fails here, by name."""

from __future__ import annotations

import inspect
import pkgutil
import sys

import pytest

from seedbed_server.engine.plugin import HOOKS

SRT = "sglang.srt"
USED = [
    f"{SRT}.plugins.hook_registry.HookRegistry._patched",
    f"{SRT}.managers.io_struct.BaseReq",
    f"{SRT}.managers.io_struct.hook_custom_types",
    f"{SRT}.managers.io_struct.GenerateReqInput",
    f"{SRT}.managers.io_struct.PauseGenerationReqInput",
    f"{SRT}.managers.io_struct.ContinueGenerationReqInput",
    f"{SRT}.managers.communicator.FanOutCommunicator.handle_recv",
    f"{SRT}.managers.scheduler.Scheduler.pause_generation",
    f"{SRT}.managers.scheduler.Scheduler.continue_generation",
    f"{SRT}.managers.scheduler.Scheduler.flush_cache",
    f"{SRT}.managers.scheduler.Scheduler.record_weight_version_change",
    f"{SRT}.managers.tokenizer_manager.TokenizerManager.auto_create_handle_loop",
    f"{SRT}.layers.linear.LinearBase",
    f"{SRT}.layers.linear.QKVParallelLinear",
    f"{SRT}.layers.linear.MergedColumnParallelLinear",
    f"{SRT}.layers.layernorm.RMSNorm",
    f"{SRT}.layers.vocab_parallel_embedding.VocabParallelEmbedding",
    f"{SRT}.layers.attention.attention_registry.register_attention_backend",
    f"{SRT}.layers.attention.torch_native_backend.TorchNativeAttnBackend.forward_decode",
    f"{SRT}.mem_cache.memory_pool.KVWriteLoc",
    f"{SRT}.server_args.add_attention_backend_choices",
    f"{SRT}.entrypoints.openai.serving_chat.OpenAIServingChat.handle_request",
    f"{SRT}.entrypoints.openai.serving_chat.OpenAIServingChat._convert_to_internal_request",
    f"{SRT}.entrypoints.openai.serving_chat.OpenAIServingChat._effective_tools",
    f"{SRT}.entrypoints.openai.serving_completions.OpenAIServingCompletion._convert_to_internal_request",
    f"{SRT}.entrypoints.openai.serving_responses.OpenAIServingResponses.create_responses",
    f"{SRT}.entrypoints.openai.serving_responses.OpenAIServingResponses._parse_required_tool_json",
    f"{SRT}.entrypoints.openai.protocol.ChatCompletionRequest",
    f"{SRT}.entrypoints.openai.protocol.LegacyStructuralTagResponseFormat",
    f"{SRT}.entrypoints.openai.protocol.StreamOptions",
    f"{SRT}.entrypoints.openai.protocol.ToolCallProcessingResult",
    f"{SRT}.function_call.function_call_parser.FunctionCallParser.get_structure_constraint",
    f"{SRT}.function_call.json_array_parser.JsonArrayParser.finish",
    "sglang.utils.TypeBasedDispatcher",
    "sglang.Engine",
]


@pytest.mark.parametrize("name", [*USED, *HOOKS])
def test_sglang_still_has(name: str) -> None:
    assert pkgutil.resolve_name(name) is not None


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        (f"{SRT}.layers.quantization.unquant.UnquantizedLinearMethod.apply", ["self", "layer", "x", "bias"]),
        (f"{SRT}.model_executor.forward_batch_info.ForwardBatch.init_new", ["batch", "model_runner"]),
        (f"{SRT}.model_executor.model_runner.ModelRunner.forward", ["self", "forward_batch"]),
        (f"{SRT}.layers.vocab_parallel_embedding.VocabParallelEmbedding.forward", ["self", "input_"]),
        (
            f"{SRT}.layers.logits_processor.LogitsProcessor._compute_lm_head",
            ["self", "hidden_states", "lm_head"],
        ),
        (f"{SRT}.managers.scheduler.Scheduler.handle_generate_request", ["self", "recv_req"]),
        (f"{SRT}.managers.tokenizer_manager.TokenizerManager.generate_request", ["self", "obj", "request"]),
        (
            f"{SRT}.layers.sampler.Sampler._sample_from_probs",
            ["self", "probs", "sampling_info", "positions"],
        ),
        (
            f"{SRT}.entrypoints.openai.serving_chat.OpenAIServingChat._tool_call_parsing_active",
            ["self", "request"],
        ),
        (
            f"{SRT}.entrypoints.openai.serving_chat.OpenAIServingChat._process_tool_calls",
            ["self", "text", "tools", "finish_reason"],
        ),
        (
            f"{SRT}.entrypoints.openai.serving_chat.OpenAIServingChat._generate_stream_content",
            ["self", "content", "index", "request", "created", "stream_offsets"],
        ),
        (
            f"{SRT}.entrypoints.openai.sse_utils.build_sse_content",
            ["chunk_id", "created", "model", "index"],
        ),
    ],
)
def test_sglang_still_passes(name: str, parameters: list[str]) -> None:
    assert list(inspect.signature(pkgutil.resolve_name(name)).parameters)[: len(parameters)] == parameters


@pytest.mark.parametrize(
    ("owner", "attributes"),
    [
        ("scheduler.Scheduler", "waiting_queue grammar_manager _request_dispatcher tp_worker tp_group"),
        ("tokenizer_manager.TokenizerManager", "_result_dispatcher _dispatch_to_scheduler"),
        ("scheduler.GrammarManager", "grammar_queue"),
        ("io_struct.GenerateReqInput", "text input_ids sampling_params parallel_sample_num"),
    ],
)
def test_sglang_still_keeps(owner: str, attributes: str) -> None:
    module = pkgutil.resolve_name(f"{SRT}.managers.{owner}").__module__
    source = inspect.getsource(sys.modules[module])
    for attribute in attributes.split():
        assert attribute in source


def test_sglang_still_has_these_sampling_parameters() -> None:
    parameters = pkgutil.resolve_name(f"{SRT}.sampling.sampling_params.SamplingParams")
    assert {"sampling_seed", "top_k", "top_p", "min_p", "n"} <= set(parameters.__struct_fields__)
    assert parameters().top_k == pkgutil.resolve_name(f"{SRT}.sampling.sampling_params.TOP_K_ALL") == 1 << 30
    information = pkgutil.resolve_name(f"{SRT}.sampling.sampling_batch_info.SamplingBatchInfo")
    assert {"top_ks", "top_ps", "min_ps", "device"} <= set(information.__dataclass_fields__)
