"""The OpenAPI document: every route with its body, its answers and its errors, as they are checked."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from seedbed_server.gateway.answers import ErrorAnswer

if TYPE_CHECKING:
    from fastapi import FastAPI
    from pydantic import BaseModel

    from seedbed_server.gateway.state import Gateway

__all__ = ["EVENT_STREAM", "answers", "body", "describe"]

_REF = "#/components/schemas/{model}"
_BODIES: set[type[BaseModel]] = set()
_WITHIN = "Episode"

_MEANING = {
    400: "A field cannot be used; `param` names it.",
    401: "The session key is not known, or its episode has ended.",
    403: "The session key belongs to another episode.",
    404: "There is no such model, episode, target or route.",
    408: "The body did not arrive in time.",
    409: "It conflicts with what is on record; asking again changes nothing.",
    413: "The body is too large.",
    429: "Too many requests, or held too long by an update.",
    500: "A fault of the server.",
    503: "The engine starts or is down, or the store cannot write.",
    504: "The completion took too long.",
}
_LATER = {
    "retry-after": {
        "description": "Seconds after which to ask again.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1, "maximum": 120},
    }
}
_NEVER = {
    "x-should-retry": {
        "description": "Tells OpenAI's clients not to ask again.",
        "required": True,
        "schema": {"type": "string", "enum": ["false"]},
    }
}
EVENT_STREAM = {
    "text/event-stream": {
        "itemSchema": {
            "type": "object",
            "description": "One server-sent event, if `stream` is true; its data is JSON, or `[DONE]`.",
            "required": ["data"],
            "properties": {"data": {"type": "string"}, "event": {"type": "string"}},
        }
    }
}


def body(model: type[BaseModel], *, required: bool = True, within: bool = False) -> dict[str, Any]:
    """`openapi_extra` of a route that reads its body itself.

    within: below the base URL of an episode, which needs not be named again.
    """
    _BODIES.add(model)
    schema = {"$ref": _REF.format(model=(_WITHIN if within else "") + model.__name__)}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def answers(
    ok: type[BaseModel] | None,
    *errors: int,
    status: int = 200,
    content: dict[str, Any] | None = None,
    special: dict[int, type[BaseModel]] | None = None,
) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route: its answer, and the errors that it can give.

    special: errors whose body has more than the usual.
    """
    found: dict[int | str, dict[str, Any]] = {status: {"description": "As asked."}}
    if ok is not None:
        found[status]["model"] = ok
    if content is not None:
        found[status]["content"] = content
    for error in errors:
        shape: Any = (special or {}).get(error, ErrorAnswer)
        found[error] = {"description": _MEANING[error], "model": shape}
        if error in (429, 503):
            found[error]["headers"] = _LATER
        if error == 409:
            found[error]["headers"] = _NEVER
    return found


def describe(app: FastAPI, gateway: Gateway) -> None:
    """Makes `GET /openapi.json` tell all of this, with the names of the loaded model."""

    def openapi() -> dict[str, Any]:
        document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        models = sorted(_BODIES, key=lambda model: model.__name__)
        _, definitions = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
        schemas.update(definitions.get("$defs", {}))
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for operations in document["paths"].values():
            for operation in operations.values():
                # Ours answer 400 instead.
                operation["responses"].pop("422", None)
        _name_models(schemas, gateway.model)
        _add_within(schemas)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _name_models(schemas: dict[str, Any], model: str | None) -> None:
    """A body has a `model` and some content: only these two names are served."""
    if model is None:
        return
    for name in (shape.__name__ for shape in _BODIES if "model" in shape.model_fields):
        schemas[name]["properties"]["model"]["enum"] = [model, f"{model}:live"]


def _add_within(schemas: dict[str, Any]) -> None:
    """The bodies below a base URL are those without a name for the episode."""
    for shape in _BODIES:
        if "seedbed" in shape.model_fields:
            schema = copy.deepcopy(schemas[shape.__name__])
            extras = copy.deepcopy(schemas["SeedbedExtras"])
            del extras["properties"]["episode_id"]
            schema["properties"]["seedbed"] = {"anyOf": [extras, {"type": "null"}]}
            schemas[_WITHIN + shape.__name__] = schema
