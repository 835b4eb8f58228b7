"""Reading a request: bounded, as JSON, and no longer than the client stays."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from seedbed_server.gateway.errors import ApiError

if TYPE_CHECKING:
    from fastapi import Request

__all__ = ["ClientGone", "hang_up", "read_body"]


class ClientGone(Exception):
    """The client hung up; nobody reads the answer."""


async def read_body(request: Request, limit: int, timeout: float = 60.0) -> bytes:
    """The body, at most `limit` bytes within `timeout` seconds. Raises ApiError with 413 or 408."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
                parts.append(part)
    except TimeoutError:
        raise ApiError(408, f"body: it did not arrive within {timeout:g} s; send it again") from None
    return b"".join(parts)


async def hang_up(request: Request) -> None:
    """Returns when the client hangs up. The request's body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413, f"body: it is larger than {limit} bytes; send a shorter one", code="request_too_large"
    )
