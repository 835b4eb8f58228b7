"""An engine without a model, for tests of the gateway's logic: real gRPC, real fencing, made-up tokens.

What the last user message says decides what happens: `wait` holds each token until `tokens` is released,
`overflow` is refused by SGLang's words, `break` fails in the middle, `swap` ends on another version; anything
else is echoed word by word.
"""

import asyncio
import hashlib
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
from safetensors.numpy import load_file, save_file

from seedbed.v1 import engine_pb2 as pb
from seedbed.v1.engine_pb2_grpc import EngineServiceServicer, add_EngineServiceServicer_to_server
from seedbed_server.digests import bits_sum, weights_digest
from seedbed_server.engine import calls

BASE = hashlib.sha256(b"base").digest()


class FakeEngine(EngineServiceServicer):
    """Survives the child that runs it only as counters; weights start at the base with every child."""

    def __init__(self) -> None:
        self.base = BASE
        self.term = 0
        self.requests: list[tuple[dict[str, Any], tuple[int, float] | None]] = []
        self.applied: list[pb.UpdateRecord] = []
        self.applications = 0
        self.restores = 0
        self.cancelled = 0
        self.tokens = asyncio.Semaphore(0)
        self.may_start = threading.Event()
        self.may_start.set()
        self.starts_failing = 0
        self.apply_gate = asyncio.Event()
        self.apply_gate.set()
        self.fail_apply: list[grpc.StatusCode] = []
        self.restored_from: list[int | None] = []
        self.restore_gate = asyncio.Event()
        self.restore_gate.set()
        self.fail_snapshot = ""
        self.reset()

    def reset(self) -> None:
        self.version, self.epoch, self.last = 0, 0, b""
        self.weights = self.base

    def _digest(self, weights: bytes) -> bytes:
        total = bits_sum(np.frombuffer(weights, np.uint32))
        return weights_digest([("w", (8,), total)], base=self.base, scope="full", dtype="float32")

    @property
    def digest(self) -> bytes:
        return self._digest(self.weights)

    @property
    def start(self) -> bytes:
        """The digest of version 0, which is not the base's."""
        return self._digest(self.base)

    @property
    def state(self) -> pb.State:
        return pb.State(version=self.version, digest=self.digest, epoch=self.epoch, term=self.term)

    async def _fence(self, term: int, context: Any) -> None:
        if term and term < self.term:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"term: {term} has passed")
        self.term = max(self.term, term)

    def _step(self, record: pb.UpdateRecord) -> None:
        data = record.SerializeToString(deterministic=True)
        self.version, self.last, self.epoch = record.version, data, self.epoch + 1
        self.weights = hashlib.sha256(self.weights + data).digest()

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        await self._fence(request.term, context)
        return pb.DescribeResponse(
            state=self.state, model="toy", model_path="/toy", architecture="LlamaForCausalLM",
            dtype="float32", device="cpu", base_digest=self.base, noise_version=1, rank=1, scope="full",
            slots=16, context_length=512, max_running_requests=16, tool_call_parser="qwen",
        )  # fmt: skip

    async def ApplyUpdate(self, request: pb.ApplyUpdateRequest, context: Any) -> pb.ApplyUpdateResponse:
        await self._fence(request.term, context)
        self.applications += 1
        await self.apply_gate.wait()
        if self.fail_apply:
            await context.abort(self.fail_apply.pop(0), "made up")
        data = request.record.SerializeToString(deterministic=True)
        if not (self.version == request.record.version and self.last == data):
            if (self.version, self.digest) != (request.from_version, request.from_digest):
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "from_version: it is not here")
            self._step(request.record)
            self.applied.append(request.record)
        return pb.ApplyUpdateResponse(
            state=self.state, seconds=0.01, update_seconds=0.005, digest_seconds=0.002
        )

    async def Restore(self, request: pb.RestoreRequest, context: Any) -> pb.RestoreResponse:
        await self._fence(request.term, context)
        self.restores += 1
        self.restored_from.append(request.version if request.folder else None)
        await self.restore_gate.wait()
        epoch = self.epoch
        self.reset()
        if request.folder:
            file = load_file(Path(request.folder) / "model.safetensors")
            self.version, self.weights = request.version, file["w"].tobytes()
        for record in request.records:
            if record.from_digest and record.from_digest != self.digest:
                await context.abort(grpc.StatusCode.DATA_LOSS, "digest: the version before is another")
            self._step(record)
        if request.digest and request.digest != self.digest:
            await context.abort(grpc.StatusCode.DATA_LOSS, "digest: it differs")
        self.version, self.epoch = request.as_version or self.version, epoch + 1
        return pb.RestoreResponse(state=self.state)

    async def Snapshot(self, request: pb.SnapshotRequest, context: Any) -> pb.SnapshotResponse:
        await self._fence(request.term, context)
        if self.fail_snapshot:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.fail_snapshot)
        if request.version != self.version:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "version: another is live")
        folder = Path(request.folder)
        folder.mkdir()
        save_file({"w": np.frombuffer(self.weights, np.float32)}, folder / "model.safetensors")
        note = {
            "version": self.version, "digest": self.digest.hex(), "base_digest": self.base.hex(),
            "scope": "full", "dtype": "float32",
        }  # fmt: skip
        (folder / "seedbed.json").write_text(json.dumps(note))
        return pb.SnapshotResponse(state=self.state, bytes=32)

    async def OpenAI(
        self, request: pb.OpenAIRequest, context: Any
    ) -> AsyncGenerator[pb.OpenAIResponse, None]:
        body = json.loads(request.body)
        address = (request.address.seed, request.address.sigma) if request.HasField("address") else None
        self.requests.append((body, address))
        words = _words(request.route, body)
        if words == ["overflow"]:
            message = "The input (900 tokens) is longer than the model's context length (512 tokens)."
            error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
            yield _head(400, "application/json", self.version)
            yield pb.OpenAIResponse(chunk=json.dumps({"error": error}).encode())
            yield pb.OpenAIResponse(tail=pb.OpenAITail(version=self.version))
            return
        try:
            routes = {
                "/v1/chat/completions": (self._whole, self._stream),
                "/v1/completions": (self._whole_text, self._stream_text),
                "/v1/responses": (self._whole_response, self._stream_response),
            }
            answer = routes[request.route][bool(body.get("stream"))]
            async for part in answer(body, words):
                yield part
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        version = self.version + (words == ["swap"])
        count = body.get("n") or 1
        yield pb.OpenAIResponse(
            tail=pb.OpenAITail(
                version=version,
                prompt_tokens=7,
                completion_tokens=len(words),
                finish_reasons=["stop"] * count,
            )
        )

    async def OpenAICalls(self, request_iterator: AsyncIterator[pb.OpenAICallsRequest], context: Any) -> None:
        async with aclosing(calls.answered(self.OpenAI, request_iterator)) as messages:
            async for message in messages:
                await context.write(message)

    async def _whole(self, body: dict[str, Any], words: list[str]) -> AsyncIterator[pb.OpenAIResponse]:
        if "wait" in words:
            await self.tokens.acquire()
        choices = [
            {
                "index": i,
                "message": {"role": "assistant", "content": " ".join(words)},
                "finish_reason": "stop",
            }
            for i in range(body.get("n") or 1)
        ]
        usage = {"prompt_tokens": 7, "completion_tokens": len(words), "total_tokens": 7 + len(words)}
        yield _head(200, "application/json", self.version)
        answer = {"id": "sglang", "object": "chat.completion", "created": 1, "model": body["model"]}
        yield pb.OpenAIResponse(chunk=json.dumps({**answer, "choices": choices, "usage": usage}).encode())

    async def _stream(self, body: dict[str, Any], words: list[str]) -> AsyncIterator[pb.OpenAIResponse]:
        yield _head(200, "text/event-stream", self.version)
        for index, word in enumerate(words):
            if "wait" in words:
                await self.tokens.acquire()
            if "break" in words and index == 1:
                raise RuntimeError("made up")
            for choice in range(body.get("n") or 1):
                yield _event(body, choice, {"content": word}, None)
        for choice in range(body.get("n") or 1):
            yield _event(body, choice, {}, "stop")
        yield pb.OpenAIResponse(chunk=b"data: [DONE]\n\n")

    async def _whole_text(self, body: dict[str, Any], words: list[str]) -> AsyncIterator[pb.OpenAIResponse]:
        yield _head(200, "application/json", self.version)
        choices = [
            {"index": i, "text": " ".join(words), "finish_reason": "stop", "logprobs": None}
            for i in range(body.get("n") or 1)
        ]
        usage = {"prompt_tokens": 7, "completion_tokens": len(words), "total_tokens": 7 + len(words)}
        answer = {"id": "sglang", "object": "text_completion", "created": 1, "model": body["model"]}
        yield pb.OpenAIResponse(chunk=json.dumps({**answer, "choices": choices, "usage": usage}).encode())

    async def _stream_text(self, body: dict[str, Any], words: list[str]) -> AsyncIterator[pb.OpenAIResponse]:
        yield _head(200, "text/event-stream", self.version)
        for word, reason in [*((word, None) for word in words), ("", "stop")]:
            choice = {"index": 0, "text": word, "finish_reason": reason, "logprobs": None}
            event = {"id": "sglang", "object": "text_completion", "created": 1, "model": body["model"]}
            yield _sse({**event, "choices": [choice]})
        yield pb.OpenAIResponse(chunk=b"data: [DONE]\n\n")

    async def _whole_response(
        self, body: dict[str, Any], words: list[str]
    ) -> AsyncIterator[pb.OpenAIResponse]:
        if "wait" in words:
            await self.tokens.acquire()
        yield _head(200, "application/json", self.version)
        yield pb.OpenAIResponse(chunk=json.dumps(_response(body, words, "completed")).encode())

    async def _stream_response(
        self, body: dict[str, Any], words: list[str]
    ) -> AsyncIterator[pb.OpenAIResponse]:
        yield _head(200, "text/event-stream", self.version)
        yield _sse(
            {"type": "response.created", "sequence_number": 0, "response": _response(body, [], "in_progress")}
        )
        for number, word in enumerate(words, start=1):
            if "break" in words and number == 2:
                raise RuntimeError("made up")
            yield _sse(
                {
                    "type": "response.output_text.delta", "sequence_number": number, "delta": word,
                    "item_id": "msg_1", "output_index": 0, "content_index": 0, "logprobs": [],
                }
            )  # fmt: skip
        last = _response(body, words, "completed")
        yield _sse({"type": "response.completed", "sequence_number": len(words) + 1, "response": last})


def _words(route: str, body: dict[str, Any]) -> list[str]:
    if route == "/v1/completions":
        return str(body["prompt"]).split()
    if route == "/v1/responses":
        given = body["input"]
        return str(given if isinstance(given, str) else given[-1].get("content", given[-1])).split()
    return str(body["messages"][-1].get("content")).split()


def _response(body: dict[str, Any], words: list[str], status: str) -> dict[str, Any]:
    text = {"type": "output_text", "text": " ".join(words), "annotations": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": [text]}
    return {
        "id": "sglang", "object": "response", "created_at": 1, "model": body["model"], "status": status,
        "output": [message] if words else [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip


def _sse(event: dict[str, Any]) -> pb.OpenAIResponse:
    name = f"event: {event['type']}\n" if "type" in event else ""
    return pb.OpenAIResponse(chunk=f"{name}data: {json.dumps(event)}\n\n".encode())


def _head(status: int, kind: str, version: int) -> pb.OpenAIResponse:
    return pb.OpenAIResponse(head=pb.OpenAIHead(status=status, content_type=kind, version=version))


def _event(body: dict[str, Any], index: int, delta: dict[str, Any], reason: str | None) -> pb.OpenAIResponse:
    event = {
        "id": "sglang",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": body["model"],
        "choices": [{"index": index, "delta": delta, "finish_reason": reason}],
    }
    return pb.OpenAIResponse(chunk=b"data: " + json.dumps(event).encode() + b"\n\n")


class FakeChild:
    """Runs a FakeEngine's server on the test's loop, and can die like a process."""

    def __init__(self, engine: FakeEngine, address: str, loop: asyncio.AbstractEventLoop) -> None:
        self.engine, self.address, self.alive = engine, address, False
        self._loop = loop
        self._server: grpc.aio.Server | None = None

    def start(self, timeout: float) -> None:
        if not self.engine.may_start.wait(timeout):
            raise TimeoutError("the test did not let it start")
        if self.engine.starts_failing:
            self.engine.starts_failing -= 1
            raise RuntimeError("model_path: /toy has no config.json; give a model folder")
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(timeout)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.die(), self._loop).result(10)

    async def _start(self) -> None:
        self.engine.reset()
        self.engine.term = 0
        self._server = grpc.aio.server()
        add_EngineServiceServicer_to_server(self.engine, self._server)
        self._server.add_insecure_port(self.address)
        await self._server.start()
        self.alive = True

    async def die(self) -> None:
        self.alive = False
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)
