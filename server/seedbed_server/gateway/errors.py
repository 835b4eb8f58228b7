"""Failures as OpenAI clients know them: {"error": {message, type, param, code}} with a fitting status."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson
import structlog
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from seedbed_server.store import StoreBusy, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI, Request

__all__ = [
    "ApiError",
    "answer",
    "bad_request",
    "bug",
    "busy",
    "error_body",
    "install",
    "json_response",
    "kind_of",
    "normalised",
    "unavailable",
]

log = structlog.get_logger(__name__)

_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class ApiError(Exception):
    """A failure that the client is told about."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """The answer that says so."""
        body = error_body(self.status, self.message, self.param, self.code)
        return json_response(self.status, body, self.headers)


def bad_request(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    """400: the request itself has to change."""
    return ApiError(400, message, param=param, code=code)


def unavailable(message: str, retry_after: int = 5) -> ApiError:
    """503: the same request will work later."""
    return ApiError(503, message, code="engine_unavailable", headers={"retry-after": str(retry_after)})


def busy(message: str, retry_after: int = 5) -> ApiError:
    """429: too much at once, or held for too long."""
    return ApiError(429, message, code="busy", headers={"retry-after": str(min(retry_after, 120))})


def bug() -> ApiError:
    """500: ours, not the client's."""
    message = "this is a fault of the server; its log says more. Nothing of this request was kept"
    return ApiError(500, message, code="internal_error")


def kind_of(status: int) -> str:
    """The `type` of an error for a status."""
    return _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")


def error_body(
    status: int, message: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The body of an error."""
    return {"error": {"message": message, "type": kind_of(status), "param": param, "code": code}}


def normalised(status: int, body: object) -> dict[str, Any]:
    """An error of the engine, nested or flat, in the shape that ours have."""
    inner = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(inner, dict):
        return error_body(status, str(inner))
    message, param, code = inner.get("message"), inner.get("param"), inner.get("code")
    return error_body(
        status,
        str(message) if message else HTTPStatus(status).phrase,
        param if isinstance(param, str) else None,
        code if isinstance(code, str) else None,
    )


def json_response(status: int, body: object, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(orjson.dumps(body), status, headers=headers, media_type="application/json")


def install(app: FastAPI) -> None:
    """Gives every failure of the app this shape, unknown routes and bugs included."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(StoreError, _store_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(Exception, _bug)


async def answer(request: Request, error: Exception) -> Response:
    """What the app would answer to a failure of its handler."""
    if isinstance(error, ApiError):
        return error.response()
    return await (_store_error if isinstance(error, StoreError) else _bug)(request, error)


async def _api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _store_error(_request: Request, error: Exception) -> Response:
    if isinstance(error, StoreBusy):
        return busy(str(error), 1).response()
    log.error("store failed", error=str(error))
    return ApiError(503, str(error), code="store_unavailable", headers={"retry-after": "5"}).response()


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path}"
    if error.status_code == 404:
        message = f"{where} is not a route of this server; GET /openapi.json lists those that are"
        return ApiError(404, message, code="unknown_url").response()
    if error.status_code == 405:
        allowed = ", ".join(_methods(request)) or "another method"
        message = f"{where} is not allowed; use {allowed}"
        return ApiError(405, message, code="method_not_allowed", headers={"allow": allowed}).response()
    return ApiError(error.status_code, str(error.detail), headers=error.headers).response()


def _methods(request: Request) -> list[str]:
    """All methods of a path; the framework names only those of its first route."""
    found: set[str] = set()
    for route in request.app.state.routes:
        if route.path_regex.match(request.url.path):
            found |= route.methods or set()
    return sorted(found)


async def _validation_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = str(first["loc"][-1])
    return bad_request(f"{name}: {first.get('input')!r}: {first['msg']}", param=name).response()


async def _bug(request: Request, error: Exception) -> Response:
    log.error("request failed", route=request.url.path, error=repr(error))
    return bug().response()
