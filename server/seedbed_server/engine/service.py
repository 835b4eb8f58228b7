"""The gRPC face of the engine: fencing, holding requests during an update, and errors with their remedy."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing
from typing import Any

import grpc

from seedbed.v1 import engine_pb2, engine_pb2_grpc
from seedbed_server.engine import calls, control
from seedbed_server.engine.address import UNPERTURBED, AddressError, Namespace, check_address
from seedbed_server.engine.config import EngineConfig
from seedbed_server.engine.generate import GenerateError, generate
from seedbed_server.engine.openai import Head, OpenAIRoutes, Tally

__all__ = ["EngineService"]

logger = logging.getLogger(__name__)

_CONTROL_SECONDS = 900.0
_CODES = {
    "FenceError": grpc.StatusCode.FAILED_PRECONDITION,
    "StepError": grpc.StatusCode.INVALID_ARGUMENT,
    "BusyError": grpc.StatusCode.UNAVAILABLE,
    "BrokenError": grpc.StatusCode.DATA_LOSS,
    "WeightsError": grpc.StatusCode.FAILED_PRECONDITION,
    "LayoutError": grpc.StatusCode.FAILED_PRECONDITION,
}
Context = grpc.aio.ServicerContext[Any, Any]


class EngineService(engine_pb2_grpc.EngineServiceServicer):
    """One live model.

    Args:
        engine: SGLang's engine; everything here runs on its loop.
        description: what the scheduler said of itself at the start.

    Attributes:
        broken: set when the weights cannot be accounted for; the process has to end then.
        heard: when a gateway was last heard, on the monotonic clock.
    """

    def __init__(self, engine: Any, config: EngineConfig, description: dict[str, Any]) -> None:
        self.engine, self.config, self.description = engine, config, description
        self.routes = OpenAIRoutes(engine)
        self.broken = asyncio.Event()
        self.heard = time.monotonic()
        self._term = 0
        self._state: dict[str, Any] = description
        self._open = asyncio.Event()
        self._open.set()
        self._writing = asyncio.Lock()

    # -- what may be asked at any time -------------------------------------------------------------

    async def Describe(
        self, request: engine_pb2.DescribeRequest, context: Context
    ) -> engine_pb2.DescribeResponse:
        await self._fence(request.term, context)
        d = self.description
        answer = engine_pb2.DescribeResponse(
            state=self._state_message(),
            model=self.config.model_name,
            model_path=self.config.model_path,
            architecture=d["architecture"],
            dtype=d["dtype"],
            device=d["device"],
            base_digest=d["base_digest"],
            noise_version=1,
            rank=1,
            scope=d["scope"],
            slots=d["slots"],
            context_length=d["context_length"],
            max_running_requests=d["max_running_requests"],
            slot_bytes=d["slot_bytes"],
            weight_bytes=d["weight_bytes"],
            tool_call_parser=self.routes.tool_call_parser,
            reasoning_parser=self.routes.reasoning_parser,
        )
        if request.parameters:
            answer.parameters.extend(
                engine_pb2.Parameter(name=name, shape=shape, coverage=coverage)
                for name, shape, coverage in d["parameters"]
            )
        return answer

    async def Generate(
        self, request: engine_pb2.GenerateRequest, context: Context
    ) -> AsyncIterator[engine_pb2.GenerateResponse]:
        namespace = await self._admit(request, context)
        first = int(self._state["version"])
        try:
            async with aclosing(generate(self.engine, request, namespace)) as pieces:
                async for piece in pieces:
                    if piece.HasField("finish"):
                        piece.finish.first_version = first
                        piece.finish.last_version = self._state["version"]
                    yield piece
        except GenerateError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    async def OpenAI(
        self, request: engine_pb2.OpenAIRequest, context: Context
    ) -> AsyncGenerator[engine_pb2.OpenAIResponse, None]:
        namespace = await self._admit(request, context)
        first, tally = int(self._state["version"]), Tally()
        async with aclosing(self.routes.run(request.route, request.body, namespace, tally)) as parts:
            async for part in parts:
                if isinstance(part, Head):
                    yield engine_pb2.OpenAIResponse(
                        head=engine_pb2.OpenAIHead(
                            status=part.status, content_type=part.content_type, version=first
                        )
                    )
                else:
                    yield engine_pb2.OpenAIResponse(chunk=part.data)
        yield engine_pb2.OpenAIResponse(
            tail=engine_pb2.OpenAITail(
                version=self._state["version"],
                prompt_tokens=tally.prompt_tokens,
                completion_tokens=tally.completion_tokens,
                cached_tokens=tally.cached_tokens,
                finish_reasons=[tally.finish_reasons[i] for i in sorted(tally.finish_reasons)],
            )
        )

    # A coroutine, because gRPC does not close a generator whose caller has gone.
    async def OpenAICalls(  # type: ignore[override]
        self, request_iterator: AsyncIterator[engine_pb2.OpenAICallsRequest], context: Context
    ) -> None:
        async with aclosing(calls.answered(self.OpenAI, request_iterator)) as messages:
            async for message in messages:
                await context.write(message)

    async def PrepareMembers(
        self, request: engine_pb2.PrepareMembersRequest, context: Context
    ) -> engine_pb2.PrepareMembersResponse:
        self.heard = time.monotonic()
        reply = await self._control(context, "prepare", seeds=list(request.seeds))
        return engine_pb2.PrepareMembersResponse(resident=reply["resident"])

    async def Digest(self, request: engine_pb2.DigestRequest, context: Context) -> engine_pb2.DigestResponse:
        reply = await self._control(context, "digest")
        return engine_pb2.DigestResponse(state=self._state_message(reply))

    # -- what changes weights, or needs them to stand still ----------------------------------------

    async def ApplyUpdate(
        self, request: engine_pb2.ApplyUpdateRequest, context: Context
    ) -> engine_pb2.ApplyUpdateResponse:
        await self._fence(request.term, context)
        if not request.HasField("record"):
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "record: it is missing; give one update record"
            )
        reply = await self._change(
            context,
            "update",
            from_version=request.from_version,
            from_digest=request.from_digest,
            record=request.record.SerializeToString(deterministic=True),
        )
        return engine_pb2.ApplyUpdateResponse(
            state=self._state_message(),
            seconds=reply["seconds"],
            update_seconds=reply["update_seconds"],
            digest_seconds=reply["digest_seconds"],
            cosine=reply["cosine"],
            retracted=reply["retracted"],
        )

    async def Restore(
        self, request: engine_pb2.RestoreRequest, context: Context
    ) -> engine_pb2.RestoreResponse:
        await self._fence(request.term, context)
        await self._change(
            context,
            "restore",
            folder=request.folder,
            version=request.version,
            records=[record.SerializeToString(deterministic=True) for record in request.records],
            digest=request.digest,
            as_version=request.as_version,
        )
        return engine_pb2.RestoreResponse(state=self._state_message())

    async def Snapshot(
        self, request: engine_pb2.SnapshotRequest, context: Context
    ) -> engine_pb2.SnapshotResponse:
        await self._fence(request.term, context)
        self.heard = time.monotonic()
        if not request.folder.startswith("/"):
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"folder: {request.folder!r} is not absolute; give a full path",
            )
        reply = await self._finish(context, self._save(request.folder, request.version))
        return engine_pb2.SnapshotResponse(state=self._state_message(reply), bytes=reply["bytes"])

    # -- shared ------------------------------------------------------------------------------------

    def _state_message(self, state: dict[str, Any] | None = None) -> engine_pb2.State:
        state = state or self._state
        return engine_pb2.State(
            version=state["version"], digest=state["digest"], epoch=state["epoch"], term=self._term
        )

    async def _fence(self, term: int, context: Context) -> None:
        """A gateway whose term has passed must not steer; 0 claims nothing."""
        if term and term < self._term:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"term: {term} has passed, a gateway of term {self._term} holds this engine; "
                "stop the older gateway",
            )
        if term:
            self._term, self.heard = term, time.monotonic()

    async def _admit(self, request: Any, context: Context) -> str:
        """The cache namespace of a request, once no update is under way."""
        try:
            given = request.HasField("address")
            address = check_address(request.address.seed, request.address.sigma) if given else UNPERTURBED
        except AddressError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if self.broken.is_set():
            await context.abort(
                grpc.StatusCode.DATA_LOSS, "the weights cannot be accounted for; restart the engine"
            )
        try:
            if not self._open.is_set():
                await asyncio.wait_for(self._open.wait(), self.config.hold_seconds)
        except TimeoutError:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"an update has held this request for {self.config.hold_seconds:g} s; repeat it in a moment",
                trailing_metadata=(("retry-after-ms", "5000"),),
            )
        return str(Namespace(self._state["epoch"], address))

    async def _change(self, context: Context, operation: str, **payload: Any) -> dict[str, Any]:
        """One operation at a time; new requests wait. A caller that leaves does not stop it half-way."""

        async def run() -> dict[str, Any]:
            async with self._writing:
                self._open.clear()
                try:
                    self._state = await control.call(self.engine.tokenizer_manager, operation, **payload)
                    return self._state
                except control.ControlError as error:
                    if error.kind == "BrokenError":
                        self.broken.set()
                    raise
                finally:
                    self._open.set()

        return await self._finish(context, run())

    async def _save(self, folder: str, version: int) -> dict[str, Any]:
        """Writes a snapshot while requests are answered; what would change the weights waits."""
        manager = self.engine.tokenizer_manager
        async with self._writing:
            await control.call(manager, "snapshot", folder=folder, version=version)
            pause = 0.01
            while (reply := await control.call(manager, "snapshot_done"))["bytes"] is None:
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.25)
            return reply

    async def _control(self, context: Context, operation: str, **payload: Any) -> dict[str, Any]:
        """An operation that changes nothing."""
        return await self._finish(context, control.call(self.engine.tokenizer_manager, operation, **payload))

    async def _finish(self, context: Context, work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        """Awaits an operation to its end, also when its caller has left: the answer of one that nobody
        awaits would be taken for the next one's.
        """
        task = asyncio.ensure_future(work)
        # Nobody may be left to take an error.
        task.add_done_callback(lambda t: t.cancelled() or t.exception())
        try:
            return await asyncio.wait_for(asyncio.shield(task), _CONTROL_SECONDS)
        except control.ControlError as error:
            code = _CODES.get(error.kind, grpc.StatusCode.INTERNAL)
            await context.abort(code, str(error))
        except TimeoutError:
            await context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                f"the scheduler did not answer for {_CONTROL_SECONDS:g} s; restart the engine",
            )
