"""A whole gateway over a FakeEngine, listening on a real port."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from openai import AsyncOpenAI

from seedbed_server.config import load_settings
from seedbed_server.gateway.app import create_app
from seedbed_server.gateway.direct import Direct
from seedbed_server.gateway.serve import _Server, listen
from seedbed_server.gateway.state import Gateway
from seedbed_server.store import Place, Store
from tests.unit.fake_engine import FakeChild, FakeEngine

_numbers = itertools.count()


@dataclass
class Running:
    url: str
    gateway: Gateway
    engine: FakeEngine
    http: httpx.AsyncClient
    openai: AsyncOpenAI
    children: list[FakeChild] = field(default_factory=list)

    async def ask(self, text: str = "hello there", model: str = "toy", **extras: Any) -> httpx.Response:
        headers = extras.pop("headers", None)
        body = {"model": model, "messages": [{"role": "user", "content": text}], **extras}
        return await self.http.post("/v1/chat/completions", json=body, headers=headers)

    async def reward(self, **fields: Any) -> httpx.Response:
        return await self.http.post("/v1/feedback", json=fields)

    async def status(self) -> dict[str, Any]:
        values: dict[str, Any] = (await self.http.get("/v1/status")).json()
        return values

    async def until(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)

    async def population_posted(self) -> None:
        """One episode and reward for each member, without waiting for what comes of it."""
        current = self.gateway.leases.population
        assert current is not None
        for value in range(len(current.members)):
            answer = (await self.ask()).json()
            await self.reward(episode_id=answer["seedbed"]["episode_id"], reward=float(value))

    async def population(self, rewards: list[float] | None = None) -> list[str]:
        """One episode and reward for each member; returns the episode ids and waits for what comes of it."""
        current = self.gateway.leases.population
        assert current is not None
        size = len(current.members)
        episodes = []
        for value in rewards if rewards is not None else [float(i) for i in range(size)]:
            answer = (await self.ask()).json()
            episodes.append(answer["seedbed"]["episode_id"])
            assert (await self.reward(episode_id=episodes[-1], reward=value)).json()["result"] == "accepted"
        await self.until(lambda: _number(self.gateway) == current.number + 1)
        return episodes


def _number(gateway: Gateway) -> int:
    assert gateway.leases.population is not None
    return gateway.leases.population.number


@asynccontextmanager
async def running(
    folder: Path,
    engine: FakeEngine | None = None,
    *,
    ready: bool = True,
    place: Place | None = None,
    **settings: Any,
) -> AsyncIterator[Running]:
    """Starts everything and ends it again; the same folder, or place, resumes the same store."""
    engine = engine or FakeEngine()
    loop = asyncio.get_running_loop()
    children: list[FakeChild] = []

    def make_child() -> FakeChild:
        children.append(FakeChild(engine, f"unix:{folder}/{next(_numbers)}.sock", loop))
        return children[-1]

    values = {"population_size": 4, "sigma_schedule": "constant", "sigma": 0.01, **settings}
    gateway = Gateway(load_settings(**values), Store(place or folder / "store.sqlite"), make_child)
    with listen("127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = _Server(
            uvicorn.Config(
                Direct(create_app(gateway)), log_config=None, lifespan="on", timeout_graceful_shutdown=1
            )
        )
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            async with (
                httpx.AsyncClient(base_url=url, timeout=20) as http,
                AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=20) as client,
            ):
                it = Running(url, gateway, engine, http, client, children)
                await it.until(lambda: server.started)
                if ready:
                    await it.until(
                        lambda: gateway.leases.population is not None and gateway.link.state == "ready"
                    )
                yield it
        finally:
            server.should_exit = True
            await asyncio.wait_for(serving, 20)
