"""What the main process can ask of a scheduler; each function runs between two batches.

An update retracts every running request, changes the weights, flushes the cache, moves the waiting requests
into the new epoch and goes on. Retracting alone is not enough: the prompt's keys and values of the old
weights would stay in the tree under the old namespace and be matched again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from seedbed.v1 import engine_pb2
from seedbed_server.engine.address import Namespace
from seedbed_server.engine.anchor import Anchor
from seedbed_server.engine.live import Live, live_of
from seedbed_server.engine.plugin import missing
from seedbed_server.engine.saving import Saving
from seedbed_server.engine.update import Step, Tally, Target, apply_steps
from seedbed_server.engine.weights import WeightsError, find_weights, load_weights, read_note
from seedbed_server.noise import NOISE_VERSION

__all__ = ["OPERATIONS", "BrokenError", "BusyError", "FenceError", "step_of"]

logger = logging.getLogger(__name__)


class FenceError(RuntimeError):
    """The caller's idea of the weights is not what they are."""


class BusyError(RuntimeError):
    """The cache could not be flushed, so nothing was changed; the call may be repeated."""


class BrokenError(RuntimeError):
    """The weights cannot be accounted for any more."""


def step_of(record: engine_pb2.UpdateRecord, default_rounding: str) -> Step:
    """The numbers of a record. Raises StepError."""
    stochastic = {
        engine_pb2.ROUNDING_NEAREST: False,
        engine_pb2.ROUNDING_STOCHASTIC: True,
    }.get(record.rounding, default_rounding == "stochastic")
    return Step(
        version=record.version,
        seeds=tuple(record.seeds),
        coefficients=tuple(b - 256 if b > 127 else b for b in record.coefficients),
        matrix_multiplier=record.matrix_multiplier,
        vector_multiplier=record.vector_multiplier,
        stochastic=stochastic,
        noise_version=record.noise_version,
        rank=record.rank,
        decay=record.decay,
    )


def _state(scheduler: Any, payload: dict[str, Any]) -> dict[str, Any]:
    return live_of(scheduler).state()


def _describe(scheduler: Any, payload: dict[str, Any]) -> dict[str, Any]:
    live = live_of(scheduler)
    return {
        **live.state(),
        "base_digest": live.base_digest,
        "architecture": live.architecture,
        "scope": live.scope,
        "dtype": live.dtype,
        "device": live.slots.device.type,
        "parameters": [(p.name, list(p.shape), p.coverage.value) for p in live.layout],
        "slots": live.slots.count,
        "slot_bytes": live.slots.bytes,
        "weight_bytes": live.weight_bytes,
        "context_length": scheduler.model_config.context_len,
        "max_running_requests": scheduler.max_running_requests,
        "max_total_tokens": scheduler.max_total_num_tokens,
        "missing_hooks": missing(),
        "unreached": live.unreached(),
    }


def _digest(scheduler: Any, payload: dict[str, Any]) -> dict[str, Any]:
    live = live_of(scheduler)
    return {**live.state(), "digest": live.measure()}


def _prepare(scheduler: Any, payload: dict[str, Any]) -> dict[str, Any]:
    seeds = list(dict.fromkeys(payload["seeds"]))
    slots = live_of(scheduler).slots
    return {"resident": len(slots.acquire(seeds[: slots.count]))}


def _snapshot(scheduler: Any, payload: dict[str, Any]) -> dict[str, Any]:
    live = live_of(scheduler)
    _refuse_broken(live)
    if payload["version"] and payload["version"] != live.version:
        raise FenceError(
            f"version: {payload['version']} is wanted and {live.version} is live; take the one that is live"
        )
    _refuse_while_saving(live)
    note = {
        "version": live.version,
        "digest": live.digest.hex(),
        "base_digest": live.base_digest.hex(),
        "scope": live.scope,
        "dtype": live.dtype,
        "noise_version": NOISE_VERSION,
    }
    live.saving = Saving(live.layout, live.model_folder, Path(payload["folder"]), note)
    return live.state()


def _snapshot_done(scheduler: Any, payload: dict[str, Any]) -> dict[str, Any]:
    """Whether the snapshot that was begun is written. Raises what went wrong with it."""
    live = live_of(scheduler)
    if live.saving is None:
        raise FenceError("snapshot: none was begun; begin one first")
    if live.saving.running:
        return {**live.state(), "bytes": None}
    saving, live.saving = live.saving, None
    return {**live.state(), "bytes": saving.result()}


def _update(scheduler: Any, payload: dict[str, Any]) -> dict[str, Any]:
    live = live_of(scheduler)
    _refuse_broken(live)
    raw: bytes = payload["record"]
    if live.last is not None and live.last[0] == raw and payload["from_version"] == live.version - 1:
        return live.last[1]
    if (payload["from_version"], payload["from_digest"]) != (live.version, live.digest):
        raise FenceError(
            f"from_version, from_digest: version {payload['from_version']} with "
            f"{payload['from_digest'].hex()[:12]} given, but version {live.version} with "
            f"{live.digest.hex()[:12]} is live; describe the engine and go on from there"
        )
    record = engine_pb2.UpdateRecord.FromString(raw)
    step = step_of(record, live.config.rounding)
    if step.version != live.version + 1:
        raise FenceError(
            f"version: {step.version} does not follow {live.version}; make version {live.version + 1}"
        )
    if record.from_digest and record.from_digest != live.digest:
        raise FenceError(
            "record.from_digest: the record was made for other weights; replay the journal before it"
        )
    # A base that cannot be used is refused before anything is written.
    anchor = live.anchor() if step.decay else None
    called = time.perf_counter()
    with _changing_weights(scheduler, live) as retracted:
        started = time.perf_counter()
        tally = Tally() if live.dtype == "bfloat16" else None
        _apply(live, step, tally, anchor)
        applied = time.perf_counter()
        digest = live.measure()
        measured = time.perf_counter()
        live.changed(step.version, digest)
    answer = {
        **live.state(),
        "seconds": time.perf_counter() - called,
        "update_seconds": applied - started,
        "digest_seconds": measured - applied,
        "cosine": tally.cosine if tally else None,
        "retracted": retracted[0],
    }
    live.last = (raw, answer)
    return answer


def _restore(scheduler: Any, payload: dict[str, Any]) -> dict[str, Any]:
    live = live_of(scheduler)
    _refuse_broken(live)
    records = [engine_pb2.UpdateRecord.FromString(raw) for raw in payload["records"]]
    steps = [step_of(record, live.config.rounding) for record in records]
    version: int = payload["version"]
    for step in steps:
        # Versions in between were taken back by rollbacks.
        if step.version <= version:
            raise FenceError(
                f"records: version {step.version} does not follow {version}; give all of them in order"
            )
        version = step.version
    if payload["as_version"]:
        if payload["as_version"] < version:
            raise FenceError(
                f"as_version: {payload['as_version']} is before version {version} of the last record; give "
                "the version that a rollback made"
            )
        version = payload["as_version"]
    folder = live.model_folder
    if payload["folder"]:
        folder = Path(payload["folder"])
        _check_note(live, folder, payload["version"])
    # A folder that cannot be used is refused before anything is written.
    files = find_weights(live.layout, folder)
    anchor = live.anchor() if any(step.decay for step in steps) else None
    with _changing_weights(scheduler, live):
        load_weights(live.layout, files)
        if not payload["folder"]:
            _demand(
                live.measure(), live.start_digest, "the base's weights on disk are not those of the start"
            )
        for record, step in zip(records, steps, strict=True):
            if record.from_digest:
                _demand(
                    live.measure(),
                    record.from_digest,
                    f"the version before {step.version} is not what its record says",
                )
            _apply(live, step, None, anchor)
        digest = live.measure()
        if payload["digest"]:
            _demand(digest, payload["digest"], f"version {version} is not what was asked for")
        live.changed(version, digest)
        live.last = None
    return live.state()


def _check_note(live: Live, folder: Path, version: int) -> None:
    """A snapshot of another model or version is refused before anything is written."""
    note = read_note(folder)
    for name, wanted in (("base_digest", live.base_digest.hex()), ("version", version)):
        if note.get(name) != wanted:
            raise WeightsError(
                f"folder: {folder} was taken at {name} {note.get(name)}, and {wanted} is wanted; "
                "name a snapshot of this model and version"
            )


def _demand(found: bytes, wanted: bytes, what: str) -> None:
    if found != wanted:
        raise BrokenError(f"digest: {what} ({found.hex()} found, {wanted.hex()} wanted)")


def _apply(live: Live, step: Step, tally: Tally | None, anchor: Anchor | None) -> None:
    targets = [
        Target(p.data, p.name, p.coverage, base=anchor.rows(p) if anchor and step.decay else None)
        for p in live.layout.covered
    ]
    with torch.no_grad():
        apply_steps(targets, step, tally)


def _refuse_broken(live: Live) -> None:
    if live.broken:
        raise BrokenError(live.broken)


def _refuse_while_saving(live: Live) -> None:
    if live.saving is not None and live.saving.running:
        raise BusyError("a snapshot of these weights is being written; repeat the call in a moment")


@contextmanager
def _changing_weights(scheduler: Any, live: Live) -> Iterator[list[int]]:
    """Between the batches of two weights. An error inside leaves weights that nobody can account for."""
    from sglang.srt.managers.io_struct import ContinueGenerationReqInput, PauseGenerationReqInput

    _refuse_while_saving(live)
    waiting_before = len(scheduler.waiting_queue)
    scheduler.pause_generation(PauseGenerationReqInput(mode="retract"))
    retracted = len(scheduler.waiting_queue) - waiting_before
    grammar = scheduler.grammar_manager
    # Requests whose grammar is being compiled hold no cache; a flush refuses to run beside them all the same.
    held, grammar.grammar_queue = grammar.grammar_queue, []
    try:
        flushed = scheduler.flush_cache(empty_cache=False)
    finally:
        grammar.grammar_queue = held
    if not flushed:
        scheduler.continue_generation(ContinueGenerationReqInput())
        raise BusyError("the cache could not be flushed while requests are being set up; repeat the call")
    try:
        yield [retracted]
    except Exception as error:
        live.broken = f"{type(error).__name__}: {error}"
        raise BrokenError(live.broken) from error
    for request in [*scheduler.waiting_queue, *grammar.grammar_queue]:
        request.extra_key = str(Namespace.parse(request.extra_key).at(live.epoch))
    scheduler.record_weight_version_change(str(live.version))
    scheduler.continue_generation(ContinueGenerationReqInput())


OPERATIONS: dict[str, Callable[[Any, dict[str, Any]], dict[str, Any]]] = {
    "state": _state,
    "describe": _describe,
    "digest": _digest,
    "prepare": _prepare,
    "snapshot": _snapshot,
    "snapshot_done": _snapshot_done,
    "update": _update,
    "restore": _restore,
}
