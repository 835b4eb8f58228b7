"""Weights that change in the middle of completions: what comes after has forgotten the old ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from seedbed.v1 import engine_pb2
from tests.engine.client import Answer, Ask, Client, Progress, record_of
from tests.reference.client import Job, Update, reference_logprobs

TOLERANCE = 1e-4


def _update(record: engine_pb2.UpdateRecord) -> Update:
    return Update(
        version=record.version,
        seeds=tuple(record.seeds),
        coefficients=tuple(b - 256 if b > 127 else b for b in record.coefficients),
        matrix_multiplier=record.matrix_multiplier,
        vector_multiplier=record.vector_multiplier,
        stochastic=record.rounding == engine_pb2.ROUNDING_STOCHASTIC,
    )


def _check_switch(
    folder: Path,
    asks: Sequence[Ask],
    answers: Sequence[Answer],
    before: tuple[Update, ...],
    after: tuple[Update, ...],
    at_least: Sequence[int],
) -> list[int]:
    """Each answer is the old version's up to some token and the new one's from there on; returns where."""
    jobs = [
        Job((*q.prompt, *a.ids), q.seed, q.sigma, updates)
        for updates in (before, after)
        for q, a in zip(asks, answers, strict=True)
    ]
    scored = reference_logprobs(folder, jobs)
    switches = []
    for k, (ask, answer) in enumerate(zip(asks, answers, strict=True)):
        start = len(ask.prompt)
        old = [v for v in scored[k].logprobs[start:] if v is not None]
        new = [v for v in scored[len(asks) + k].logprobs[start:] if v is not None]
        is_new = [abs(g - n) <= TOLERANCE for g, n in zip(answer.logprobs, new, strict=True)]
        switch = next((i for i, yes in enumerate(is_new) if yes and all(is_new[i:])), len(is_new))
        off_old = [abs(g - o) for g, o in zip(answer.logprobs[:switch], old[:switch], strict=True)]
        assert max(off_old, default=0.0) <= TOLERANCE, (
            f"request {k}: neither old nor new weights before {switch}"
        )
        assert switch >= at_least[k] - 1, f"request {k}: changed at {switch}, before the update"
        # The test would say nothing if both weights gave the same numbers.
        moved = max((abs(o - n) for o, n in zip(old[switch:], new[switch:], strict=True)), default=1.0)
        assert moved >= 100 * TOLERANCE, f"request {k}: the update moved nothing ({moved})"
        switches.append(switch)
    return switches


def _asks(count: int, tokens: int, rng: random.Random) -> list[Ask]:
    members = [(0, 0.0), (1, 0.03), (1, -0.03), (2, 0.05), (3, -0.04), (4, 0.02)]
    return [
        Ask(tuple(rng.randrange(3, 512) for _ in range(20 + 7 * (i % 6))), *members[i % 6], tokens=tokens)
        for i in range(count)
    ]


def test_tokens_after_an_update_come_from_a_fresh_prefill_on_the_new_weights(
    llama: Client, toy_folder: Callable[..., Path]
) -> None:
    """Twenty requests over sixteen places: some run across the update, some wait during it."""
    rng = random.Random(4)
    asks = _asks(20, 90, rng)
    record = record_of(1, {11: 90, 12: -127, 13: 33})
    reached: dict[int, int] = {}
    retracted = []

    def during(progress: Progress) -> None:
        with progress.changed:
            progress.changed.wait_for(
                lambda: sum(count >= 20 for count in progress.counts.values()) >= 8, timeout=120
            )
        reached.update(progress.counts)
        retracted.append(llama.update(record).retracted)

    answers = llama.ask_all(asks, during)
    assert retracted[0] > 0
    folder = toy_folder("llama")
    least = [reached.get(i, 0) for i in range(len(asks))]
    switches = _check_switch(folder, asks, answers, (), (_update(record),), least)
    across = sum(0 < s < len(a.ids) for s, a in zip(switches, answers, strict=True))
    waited = sum(s == 0 for s in switches)
    assert across >= 8, switches
    assert waited >= 1, switches


def test_tokens_after_an_update_and_a_rollback_come_from_the_weights_that_are_back(
    llama: Client, toy_folder: Callable[..., Path]
) -> None:
    rng = random.Random(5)
    record = record_of(1, {11: 90, 12: -127, 13: 33})
    base = llama.state.digest
    llama.update(record)
    asks = _asks(6, 90, rng)
    reached: dict[int, int] = {}

    def during(progress: Progress) -> None:
        progress.wait_for(range(6), 20)
        reached.update(progress.counts)
        assert llama.restore(digest=base).digest == base

    answers = llama.ask_all(asks, during)
    folder = toy_folder("llama")
    least = [reached.get(i, 0) for i in range(len(asks))]
    switches = _check_switch(folder, asks, answers, (_update(record),), (), least)
    assert all(0 < s < len(a.ids) for s, a in zip(switches, answers, strict=True)), switches
    assert [a.first_version for a in answers] == [1] * 6
    assert [a.last_version for a in answers] == [0] * 6


def test_requests_after_several_updates_have_the_weights_of_the_last(
    llama: Client, toy_folder: Callable[..., Path]
) -> None:
    rng = random.Random(6)
    records = [record_of(v, {20 + v: 60, 40 + v: -100}) for v in (1, 2, 3)]
    for record in records:
        llama.update(record)
    asks = _asks(6, 8, rng)
    answers = llama.ask_all(asks)
    updates = tuple(_update(r) for r in records)
    jobs = [Job((*q.prompt, *a.ids), q.seed, q.sigma, updates) for q, a in zip(asks, answers, strict=True)]
    for ask, answer, right in zip(asks, answers, reference_logprobs(toy_folder("llama"), jobs), strict=True):
        wanted = right.logprobs[len(ask.prompt) :]
        assert (
            max(abs(g - w) for g, w in zip(answer.logprobs, wanted, strict=True) if w is not None)
            <= TOLERANCE
        )
