"""GET /v1/models: what is loaded, exploring and live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Path, Request, Response

from seedbed_server.gateway.answers import ModelAnswer, ModelsAnswer
from seedbed_server.gateway.document import answers
from seedbed_server.gateway.errors import ApiError, json_response
from seedbed_server.gateway.request import LIVE
from seedbed_server.gateway.state import gateway_of

if TYPE_CHECKING:
    from seedbed_server.gateway.state import Gateway

__all__ = ["router"]

router = APIRouter()


@router.get("/v1/models", responses=answers(ModelsAnswer, 503))
async def list_models(request: Request) -> Response:
    """The loaded model, exploring and live."""
    return _list(gateway_of(request))


@router.get("/v1/models/{model:path}", responses=answers(ModelAnswer, 404, 503))
async def get_model(request: Request, model: str) -> Response:
    """One of the two."""
    return _one(gateway_of(request), model)


@router.get("/v1/episodes/{id}/v1/models", responses=answers(ModelsAnswer, 503))
async def list_episode_models(request: Request, id: str = Path()) -> Response:  # noqa: A002, ARG001
    """The same, below the base URL of an episode."""
    return _list(gateway_of(request))


@router.get("/v1/episodes/{id}/v1/models/{model:path}", responses=answers(ModelAnswer, 404, 503))
async def get_episode_model(
    request: Request,
    model: str,
    id: str = Path(),  # noqa: A002, ARG001
) -> Response:
    """The same, below the base URL of an episode."""
    return _one(gateway_of(request), model)


def _list(gateway: Gateway) -> Response:
    return json_response(200, {"object": "list", "data": _models(gateway)})


def _one(gateway: Gateway, model: str) -> Response:
    for entry in _models(gateway):
        if entry["id"] == model:
            return json_response(200, entry)
    raise ApiError(
        404,
        f"model: {model!r} is not served here; use {gateway.model!r} or {f'{gateway.model}{LIVE}'!r}",
        param="model",
        code="model_not_found",
    )


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
                "tools": bool(loaded.tool_call_parser),
                "tool_call_parser": loaded.tool_call_parser or None,
                "reasoning": bool(loaded.reasoning_parser),
                "reasoning_parser": loaded.reasoning_parser or None,
            },
        }
        for name, explores in ((loaded.model, True), (loaded.model + LIVE, False))
    ]
