"""A proxy that only passes bytes on: what any process between a client and SGLang's server costs.

    python -m bench.pass_through --to URL --port PORT

It keeps nothing and looks at nothing, on the loop and the HTTP server that the gateway uses. SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import aiohttp
import uvicorn

from seedbed_server.gateway.serve import new_loop


class _PassThrough:
    """An ASGI application."""

    def __init__(self, to: str) -> None:
        self._to = to
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if self._session is None:
            self._session = aiohttp.ClientSession(
                self._to,
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0),
                timeout=aiohttp.ClientTimeout(total=600),
            )
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {"content-type": "application/json"}
        async with self._session.request(
            scope["method"], scope["path"], data=body or None, headers=headers
        ) as answer:
            kept = [
                (name.lower(), value)
                for name, value in answer.raw_headers
                if name.lower() in (b"content-type", b"content-length")
            ]
            await send({"type": "http.response.start", "status": answer.status, "headers": kept})
            async for piece in answer.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    config = uvicorn.Config(
        _PassThrough(options.to), port=options.port, lifespan="off", log_config=None, access_log=False
    )
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main()
