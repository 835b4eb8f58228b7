"""The plugin: every place where we touch SGLang, and how it is proven that each one was reached.

SGLang finds `register` by its entry point in each of its processes, and only logs what goes wrong with a
hook; `missing` tells which of ours were not applied, and the engine refuses to serve if there are any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seedbed_server.engine import perturb, sampling
from seedbed_server.engine.address import Namespace
from seedbed_server.engine.layout import LayoutError
from seedbed_server.engine.live import Live, configured, live_of
from seedbed_server.engine.slots import LinearFactors, NormFactors, VocabularyFactors

__all__ = ["HOOKS", "missing", "register"]

_SRT = "sglang.srt"
_live: Live | None = None
"""The live model of this process; there is at most one."""


def register() -> None:
    """Called by SGLang in each of its processes; does nothing outside an engine of ours."""
    if configured() is None:
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from seedbed_server.engine import attention

    attention.register()
    for target, (kind, hook) in HOOKS.items():
        HookRegistry.register(target, hook, HookType[kind])


def missing() -> list[str]:
    """Hooks of ours that SGLang did not apply in this process."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    return sorted(set(HOOKS) - HookRegistry._patched)


def _after_load(_: None, runner: Any, *args: Any, **kwargs: Any) -> None:
    global _live
    config = configured()
    assert config is not None
    try:
        _live = runner.seedbed = Live.attach(runner.model, config)
    except LayoutError as error:
        # Raised here it would only be a line in SGLang's log; the engine asks for it and refuses to serve.
        runner.seedbed = error


def _after_scheduler_dispatcher(_: None, scheduler: Any) -> None:
    from seedbed_server.engine.control import install_scheduler

    install_scheduler(scheduler)


def _after_main_communicators(_: None, tokenizer_manager: Any) -> None:
    from seedbed_server.engine.control import install_main

    install_main(tokenizer_manager)


def _before_generate(manager: Any, request: Any, *args: Any, **kwargs: Any) -> None:
    """A namespace that does not parse is refused where the caller still hears of it."""
    keys = getattr(request, "extra_key", None)
    for key in keys if isinstance(keys, list) else [keys]:
        Namespace.parse(key)


def _before_intake(scheduler: Any, request: Any, *args: Any, **kwargs: Any) -> None:
    """A request that was sent before an update and arrives after it belongs to the new epoch."""
    live = live_of(scheduler)
    request.extra_key = str(Namespace.parse(request.extra_key).at(live.epoch))


def _after_batch(batch: Any, _: type, schedule_batch: Any, runner: Any, **kwargs: Any) -> None:
    live = getattr(runner, "seedbed", None)
    if isinstance(live, Live):
        batch.seedbed = live.batch_rows([r.extra_key for r in schedule_batch.reqs])
    if batch.sampling_info is not None:
        # It goes with the batch also where tokens are drawn later, once a grammar is ready.
        parameters = [r.sampling_params for r in schedule_batch.reqs]
        batch.sampling_info.seedbed = sampling.seeded_rows(parameters, batch.sampling_info.device)


def _around_forward(forward: Callable[..., Any], runner: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
    rows: perturb.Rows | None = getattr(batch, "seedbed", None)
    if rows is None or _live is None:
        return forward(runner, batch, *args, **kwargs)
    extending = batch.forward_mode.is_extend()
    _live.rows, _live.requests = rows.repeat(batch.extend_seq_lens_cpu) if extending else rows, rows
    try:
        return forward(runner, batch, *args, **kwargs)
    finally:
        _live.rows = _live.requests = _live.head = None


def _around_linear(apply: Callable[..., Any], method: Any, layer: Any, x: Any, bias: Any = None) -> Any:
    y = apply(method, layer, x, bias)
    if _live is not None and _live.rows is not None:
        factors = _live.factors(layer)
        if isinstance(factors, LinearFactors):
            perturb.linear_(y, x, factors, _live.rows, bias is not None)
    return y


def _around_embedding(forward: Callable[..., Any], module: Any, ids: Any) -> Any:
    y = forward(module, ids)
    if _live is not None and _live.rows is not None:
        factors = _live.factors(module)
        if isinstance(factors, VocabularyFactors):
            perturb.embed_(y, ids, factors, _live.rows)
    return y


def _around_norm(forward: Callable[..., Any], module: Any, *args: Any, **kwargs: Any) -> Any:
    y = forward(module, *args, **kwargs)
    if _live is not None and _live.rows is not None:
        factors = _live.factors(module)
        if isinstance(factors, NormFactors):
            perturb.norm_(y[0] if isinstance(y, tuple) else y, factors, _live.rows)
    return y


def _after_pruned(states: Any, processor: Any, *args: Any, **kwargs: Any) -> None:
    """The head sees one row a request, or with log-probabilities of the prompt also rows of its tokens."""
    if _live is None or _live.requests is None:
        return
    import torch

    sequence_of_row = states[5]
    rows = _live.requests
    if sequence_of_row:
        rows = rows.pick(torch.as_tensor(sequence_of_row, device=rows.slot.device))
    if len(rows) != states[0].shape[0]:
        raise RuntimeError(f"the head has {states[0].shape[0]} rows and the batch {len(rows)}")
    _live.head, _live.head_taken = rows, 0


def _around_head(
    compute: Callable[..., Any], processor: Any, states: Any, head: Any, *args: Any, **kwargs: Any
) -> Any:
    y = compute(processor, states, head, *args, **kwargs)
    if _live is not None and _live.head is not None:
        factors = _live.factors(head)
        if isinstance(factors, VocabularyFactors):
            # Log-probabilities of long prompts come in chunks, in the order of the rows.
            start, _live.head_reached = _live.head_taken, True
            _live.head_taken += states.shape[0]
            perturb.head_(y, states, factors, _live.head.range(start, start + states.shape[0]))
    return y


def _around_sample(
    sample: Callable[..., Any], sampler: Any, p: Any, info: Any, positions: Any, *args: Any, **kwargs: Any
) -> Any:
    """SGLang draws for all rows as ever; those with a seed then get theirs."""
    ids, mask = sample(sampler, p, info, positions, *args, **kwargs)
    seeded: sampling.Seeded | None = getattr(info, "seedbed", None)
    if seeded is not None:
        ids[seeded.rows] = sampling.choose(p, positions, seeded, info).to(ids.dtype)
    return ids, mask


def _never(*_: object, **__: object) -> bool:
    """SGLang's fused kernels for q and k norms read the weights past the norm modules."""
    return False


HOOKS: dict[str, tuple[str, Callable[..., Any]]] = {
    f"{_SRT}.model_executor.model_runner.ModelRunner.load_model": ("AFTER", _after_load),
    f"{_SRT}.managers.scheduler.Scheduler.init_request_dispatcher": ("AFTER", _after_scheduler_dispatcher),
    f"{_SRT}.managers.tokenizer_manager.TokenizerManager.init_communicators": (
        "AFTER",
        _after_main_communicators,
    ),
    f"{_SRT}.managers.tokenizer_manager.TokenizerManager.generate_request": ("BEFORE", _before_generate),
    f"{_SRT}.managers.scheduler.Scheduler.handle_generate_request": ("BEFORE", _before_intake),
    f"{_SRT}.model_executor.forward_batch_info.ForwardBatch.init_new": ("AFTER", _after_batch),
    f"{_SRT}.model_executor.model_runner.ModelRunner.forward": ("AROUND", _around_forward),
    f"{_SRT}.layers.quantization.unquant.UnquantizedLinearMethod.apply": ("AROUND", _around_linear),
    f"{_SRT}.layers.vocab_parallel_embedding.VocabParallelEmbedding.forward": ("AROUND", _around_embedding),
    f"{_SRT}.layers.layernorm.RMSNorm.forward": ("AROUND", _around_norm),
    f"{_SRT}.models.utils.can_use_fused_inplace_qknorm": ("REPLACE", _never),
    f"{_SRT}.models.utils.can_use_fused_qk_norm_cpu": ("REPLACE", _never),
    f"{_SRT}.layers.logits_processor.LogitsProcessor._get_pruned_states": ("AFTER", _after_pruned),
    f"{_SRT}.layers.logits_processor.LogitsProcessor._compute_lm_head": ("AROUND", _around_head),
    f"{_SRT}.layers.sampler.Sampler._sample_from_probs": ("AROUND", _around_sample),
}
