"""Talks to an engine as a gateway would, in the fewest words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc

from seedbed.v1 import engine_pb2, engine_pb2_grpc
from seedbed_server.engine.process import EngineProcess

__all__ = ["Answer", "Ask", "Client", "record_of"]

TIMEOUT = 300.0


@dataclass(frozen=True)
class Ask:
    """One request; a sigma of 0 asks the unperturbed live model."""

    prompt: tuple[int, ...]
    seed: int = 0
    sigma: float = 0.0
    tokens: int = 8
    prompt_logprobs: bool = False
    logprobs: bool = True
    temperature: float = 0.0
    top_p: float = 1.0
    sampling_seed: int | None = None


@dataclass(frozen=True)
class Answer:
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    prompt_logprobs: tuple[float | None, ...]
    cached: int
    first_version: int
    last_version: int


@dataclass
class Progress:
    """How many tokens a running request has; lets a test act in the middle of it."""

    counts: dict[int, int] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, index: Sequence[int], tokens: int) -> None:
        with self.changed:
            done = self.changed.wait_for(
                lambda: all(self.counts.get(i, 0) >= tokens for i in index), timeout=TIMEOUT
            )
        assert done, f"requests {list(index)} did not reach {tokens} tokens: {self.counts}"

    def add(self, index: int, tokens: int) -> None:
        with self.changed:
            self.counts[index] = self.counts.get(index, 0) + tokens
            self.changed.notify_all()


class Client:
    """One engine, which this client may change; its term rises so that it always holds it."""

    def __init__(self, process: EngineProcess) -> None:
        self.process = process
        self.stub = engine_pb2_grpc.EngineServiceStub(grpc.insecure_channel(process.address))
        self.description = self.stub.Describe(
            engine_pb2.DescribeRequest(term=1, parameters=True), timeout=TIMEOUT
        )

    @property
    def state(self) -> engine_pb2.State:
        return self.stub.Describe(engine_pb2.DescribeRequest(), timeout=TIMEOUT).state

    def ask(self, ask: Ask, index: int = 0, progress: Progress | None = None) -> Answer:
        request = engine_pb2.GenerateRequest(
            token_ids=engine_pb2.TokenIds(ids=ask.prompt),
            logprobs=ask.logprobs,
            sampling=engine_pb2.Sampling(max_new_tokens=ask.tokens, ignore_eos=True),
        )
        if ask.temperature:
            request.sampling.temperature, request.sampling.top_p = ask.temperature, ask.top_p
        if ask.sampling_seed is not None:
            request.sampling.seed = ask.sampling_seed
        if ask.sigma:
            request.address.seed, request.address.sigma = ask.seed, ask.sigma
        if ask.prompt_logprobs:
            request.prompt_logprobs_from = 0
        pieces = []
        for piece in self.stub.Generate(request, timeout=TIMEOUT):
            pieces.append(piece)
            if progress is not None:
                progress.add(index, len(piece.ids))
        finish = pieces[-1].finish
        return Answer(
            tuple(i for p in pieces for i in p.ids),
            tuple(v.logprob for p in pieces for v in p.logprobs),
            tuple(v.logprob if v.HasField("logprob") else None for v in finish.prompt_logprobs),
            finish.cached_tokens,
            finish.first_version,
            finish.last_version,
        )

    def ask_all(
        self,
        asks: Sequence[Ask],
        during: Callable[[Progress], None] | None = None,
        at_once: int | None = None,
    ) -> list[Answer]:
        """All of them at the same time; `during` runs meanwhile and sees their progress."""
        progress = Progress()
        with ThreadPoolExecutor(at_once or len(asks)) as pool:
            running = [pool.submit(self.ask, ask, i, progress) for i, ask in enumerate(asks)]
            if during is not None:
                during(progress)
            return [r.result(TIMEOUT) for r in running]

    def update(self, record: engine_pb2.UpdateRecord) -> engine_pb2.ApplyUpdateResponse:
        state = self.state
        return self.stub.ApplyUpdate(
            engine_pb2.ApplyUpdateRequest(
                term=state.term, from_version=state.version, from_digest=state.digest, record=record
            ),
            timeout=TIMEOUT,
        )

    def restore(
        self,
        records: Sequence[engine_pb2.UpdateRecord] = (),
        digest: bytes = b"",
        folder: str = "",
        version: int = 0,
        as_version: int = 0,
    ) -> engine_pb2.State:
        request = engine_pb2.RestoreRequest(
            term=self.state.term,
            records=records,
            digest=digest,
            folder=folder,
            version=version,
            as_version=as_version,
        )
        return self.stub.Restore(request, timeout=TIMEOUT).state

    def measured_digest(self) -> bytes:
        return self.stub.Digest(engine_pb2.DigestRequest(), timeout=TIMEOUT).state.digest

    def snapshot(self, folder: str, version: int = 0) -> engine_pb2.SnapshotResponse:
        request = engine_pb2.SnapshotRequest(folder=folder, version=version)
        return self.stub.Snapshot(request, timeout=TIMEOUT)


def record_of(
    version: int,
    coefficients: dict[int, int],
    *,
    matrix: float = 2.0**-14,
    vector: float = 2.0**-12,
    stochastic: bool = False,
    decay: float = 0.0,
) -> engine_pb2.UpdateRecord:
    """An update record from coefficients by seed."""
    return engine_pb2.UpdateRecord(
        version=version,
        noise_version=1,
        rank=1,
        seeds=list(coefficients),
        coefficients=bytes(c % 256 for c in coefficients.values()),
        matrix_multiplier=matrix,
        vector_multiplier=vector,
        decay=decay,
        rounding=engine_pb2.ROUNDING_STOCHASTIC if stochastic else engine_pb2.ROUNDING_NEAREST,
    )
