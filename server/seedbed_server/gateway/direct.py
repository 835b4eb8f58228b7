"""The way of completions past the framework, which takes as long to find a route as the route takes.

The routes stay declared in `openai`: they describe themselves there, and answer all methods and paths that
are not exactly these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import Request

from seedbed_server.gateway import errors, openai
from seedbed_server.gateway.request import CHAT, COMPLETIONS, RESPONSES

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import Message, Receive, Scope, Send

__all__ = ["Direct"]

_EPISODES = "/v1/episodes/"
_ROUTES = frozenset((CHAT, COMPLETIONS, RESPONSES))


class Direct:
    """An ASGI application around another one."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a completion, or lets the application answer."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        route, episode_id = scope["path"], None
        if route.startswith(_EPISODES):
            episode_id, _, below = route[len(_EPISODES) :].partition("/")
            route = f"/{below}"
        if route not in _ROUTES or episode_id == "":
            await self._app(scope, receive, send)
            return
        begun = False

        async def told(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        scope["app"] = self._app
        request = Request(scope, receive, told)
        try:
            response = await openai.complete(request, route, episode_id)
            await response(scope, receive, told)
        except Exception as error:
            if begun:
                raise
            await (await errors.answer(request, error))(scope, receive, send)
