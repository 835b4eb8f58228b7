"""The HTTP application: routes over one gateway."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI

from seedbed_server.gateway import (
    document,
    episode_routes,
    errors,
    feedback,
    learning_routes,
    model_routes,
    openai,
    rollback_routes,
    status,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from seedbed_server.gateway.state import Gateway

__all__ = ["create_app"]


def create_app(gateway: Gateway) -> FastAPI:
    """The application; its lifespan starts the gateway's engine and loops, and ends them in order."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        gateway.start()
        try:
            yield
        finally:
            await gateway.stop()

    app = FastAPI(
        title="Seedbed",
        summary="A live language model that learns from rewards while it serves.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.gateway = gateway
    errors.install(app)
    document.describe(app, gateway)
    routers = (
        openai.router,
        model_routes.router,
        episode_routes.router,
        feedback.router,
        learning_routes.router,
        rollback_routes.router,
        status.router,
    )
    app.state.routes = [route for router in routers for route in router.routes]
    for router in routers:
        app.include_router(router)
    return app
