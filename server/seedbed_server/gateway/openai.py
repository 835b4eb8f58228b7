"""POST /v1/chat/completions and GET /v1/models: leases, names and ids around SGLang's own handlers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import grpc.aio
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from seedbed_server.gateway.bodies import ClientGone, read_body, while_connected
from seedbed_server.gateway.completion import Completion
from seedbed_server.gateway.errors import ApiError, busy, json_response, unavailable
from seedbed_server.gateway.request import LIVE, Prepared, prepare
from seedbed_server.gateway.state import Gateway, gateway_of

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

if TYPE_CHECKING:
    from seedbed.v1.engine_pb2_grpc import EngineServiceAsyncStub

__all__ = ["router"]

MAX_BODY = 16 << 20
MAX_IN_FLIGHT = 1024

router = APIRouter()


@router.post("/v1/chat/completions")
async def chat_completions(request: Request) -> Response:
    """Answers with the episode's member, or with the live model for `<name>:live`."""
    return await complete(request, "/v1/chat/completions")


@router.get("/v1/models")
async def list_models(request: Request) -> Response:
    """The loaded model, exploring and live."""
    gateway = gateway_of(request)
    return json_response(200, {"object": "list", "data": _models(gateway)})


@router.get("/v1/models/{model:path}")
async def get_model(request: Request, model: str) -> Response:
    """One of the two."""
    gateway = gateway_of(request)
    for entry in _models(gateway):
        if entry["id"] == model:
            return json_response(200, entry)
    raise ApiError(
        404,
        f"model: {model!r} is not served here; use {gateway.model!r} or {gateway.model + LIVE!r}"
        if gateway.model
        else f"model: {model!r} is not served here",
        param="model",
        code="model_not_found",
    )


async def complete(request: Request, route: str) -> Response:
    """One OpenAI request, from its body to the last byte of its answer."""
    gateway = gateway_of(request)
    started = time.monotonic()
    status = 500
    if gateway.in_flight >= MAX_IN_FLIGHT:
        raise busy(f"{MAX_IN_FLIGHT} requests are being answered; try again later", 2)
    gateway.in_flight += 1
    gateway.metrics.in_flight.inc()
    response: Response | None = None
    try:
        engine = gateway.link.ready
        assert gateway.model is not None
        prepared = prepare(await read_body(request, MAX_BODY), request.headers, gateway.model)
        completion = Completion(gateway, prepared, route, started)
        response = await while_connected(request, _begin(completion, engine, prepared, route))
        status = response.status_code
        return response
    except ApiError as error:
        status = error.status
        raise
    except ClientGone:
        status = 499
        return Response(status_code=499)
    finally:
        gateway.metrics.requests.labels(route, status).inc()
        if not isinstance(response, _Stream):
            _leave(gateway, route, started)


async def _begin(
    completion: Completion, engine: EngineServiceAsyncStub, prepared: Prepared, route: str
) -> Response:
    try:
        head = await completion.start(engine)
        if head.status != 200 or not prepared.stream:
            status, body, headers = await completion.collect()
            return json_response(status, body, headers)
    except grpc.aio.AioRpcError as error:
        completion.abandon("failed")
        raise _failure(completion.gateway, error) from None
    except BaseException:
        completion.abandon("cancelled")
        raise
    return _Stream(completion, route)


class _Stream(StreamingResponse):
    """Server-sent events; the completion ends with it, however it ends."""

    def __init__(self, completion: Completion, route: str) -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no", **completion.headers()}
        super().__init__(completion.stream(), 200, headers=headers, media_type="text/event-stream")
        self._completion = completion
        self._route = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._completion.close_stream()
            _leave(self._completion.gateway, self._route, self._completion.started)


def _leave(gateway: Gateway, route: str, started: float) -> None:
    gateway.in_flight -= 1
    gateway.metrics.in_flight.dec()
    gateway.metrics.duration.labels(route).observe(time.monotonic() - started)


def _failure(gateway: Gateway, error: grpc.aio.AioRpcError) -> ApiError:
    """What a failed call means for the client."""
    details = error.details() or error.code().name
    match error.code():
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return busy(details, 5)
        case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.OUT_OF_RANGE:
            return ApiError(400, details)
        case grpc.StatusCode.UNIMPLEMENTED:
            return ApiError(501, details)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return ApiError(504, "the completion took longer than a request may; ask for fewer tokens")
    gateway.link.suspect()
    return unavailable(f"the engine did not answer ({details}); try again in a few seconds", 5)


def _models(gateway: Gateway) -> list[dict[str, Any]]:
    loaded = gateway.link.loaded
    if loaded is None:
        _ = gateway.link.ready
        return []
    return [
        {
            "id": name,
            "object": "model",
            "created": int(gateway.created),
            "owned_by": "seedbed",
            "seedbed": {
                "explores": explores,
                "version": gateway.updates.version,
                "context_length": loaded.context_length,
                "dtype": loaded.dtype,
            },
        }
        for name, explores in ((loaded.model, True), (loaded.model + LIVE, False))
    ]
