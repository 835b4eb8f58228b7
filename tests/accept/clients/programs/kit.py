"""What all programs share: cases that run one after another, and facts that are printed as JSON.

A program is started with one argument, the JSON of a `Setting`, and its last line on standard output is
`{case: {"facts": ..., "bodies": n, "events": n, "problems": [...], "seconds": s}}`, or `"failed"` with a
traceback in place of the facts.
"""

import asyncio
import contextlib
import inspect
import json
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx2
import strict
from openai import AsyncOpenAI, OpenAI
from wire import Record, async_client, sync_client


@dataclass(frozen=True)
class Setting:
    """Where the server is, and what it serves."""

    url: str
    model: str
    only: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


class World:
    """What a case works with. Everything that it opens is closed after it."""

    def __init__(self, setting: Setting, *, asynchronous: bool) -> None:
        self.setting, self.asynchronous = setting, asynchronous
        self.model = setting.model
        self.record = Record()
        self._stack = contextlib.AsyncExitStack()

    # -- clients -----------------------------------------------------------------------------------------

    def client(self, *, key: str = "none", base_url: str = "", retries: int = 0) -> Any:
        """An OpenAI or AsyncOpenAI whose wire is kept."""
        options: dict[str, Any] = {
            "base_url": base_url or f"{self.setting.url}/v1",
            "api_key": key,
            "max_retries": retries,
            "timeout": 120,
        }
        if self.asynchronous:
            client = AsyncOpenAI(http_client=async_client(httpx2, self.record), **options)
            self._stack.push_async_callback(client.close)
            return client
        plain = OpenAI(http_client=sync_client(httpx2, self.record), **options)
        self._stack.callback(plain.close)
        return plain

    async def close(self) -> None:
        await self._stack.aclose()

    # -- sync and async alike ----------------------------------------------------------------------------

    async def get(self, result: Any) -> Any:
        """The result of a call to either client."""
        return await result if inspect.isawaitable(result) else result

    async def every(self, stream: Any) -> list[Any]:
        """All that a stream has."""
        return [item async for item in self.each(stream)]

    async def each(self, stream: Any) -> AsyncIterator[Any]:
        if hasattr(stream, "__aiter__"):
            async for item in stream:
                yield item
        else:
            for item in stream:
                yield item

    @contextlib.asynccontextmanager
    async def inside(self, manager: Any) -> AsyncIterator[Any]:
        """Either kind of context manager."""
        if hasattr(manager, "__aenter__"):
            async with manager as value:
                yield value
        else:
            with manager as value:
                yield value

    async def together(self, *calls: Callable[[], Any]) -> list[Any]:
        """All calls at once; threads for the client that blocks."""
        if self.asynchronous:
            return list(await asyncio.gather(*(call() for call in calls)))
        with ThreadPoolExecutor(len(calls)) as pool:
            return [future.result(120) for future in [pool.submit(call) for call in calls]]

    async def raises(self, call: Callable[[], Any]) -> dict[str, Any]:
        """The failure of a call, as the SDK shows it, or what came back if there was none."""
        before = len(self.record.exchanges)
        try:
            result = await self.get(call())
            if hasattr(result, "__aiter__") or hasattr(result, "__next__"):
                result = await self.every(result)
        except Exception as error:
            response = getattr(error, "response", None)
            return {
                "kind": type(error).__name__,
                "status": getattr(error, "status_code", None),
                "message": str(getattr(error, "message", error)),
                "param": getattr(error, "param", None),
                "code": getattr(error, "code", None),
                "type": getattr(error, "type", None),
                "headers": dict(response.headers) if response is not None else {},
                "requests": len(self.record.exchanges) - before,
            }
        return {"kind": None, "came": str(result)[:200]}

    # -- our own routes ----------------------------------------------------------------------------------

    async def ours(self, method: str, path: str, body: Any = None, *, key: str = "none") -> dict[str, Any]:
        """A call of a route that OpenAI does not have, through the client's own way for it."""
        client = self.client(key=key)
        call = getattr(client, method)
        options: dict[str, Any] = {"cast_to": object}
        if body is not None:
            options["body"] = body
        answer: dict[str, Any] = await self.get(call(path, **options))
        return answer

    async def episode(self, **fields: Any) -> dict[str, Any]:
        return await self.ours("post", "/episodes", fields)


Case = Callable[[World], Any]
_CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Registers a function as a case of this program."""
    _CASES[function.__name__] = function
    return function


def main(*, asynchronous: bool = True) -> None:
    setting = Setting(**json.loads(sys.argv[1]))
    results = {}
    for name, function in _CASES.items():
        if not setting.only or name in setting.only:
            results[name] = asyncio.run(_run(function, World(setting, asynchronous=asynchronous)))
    print("\n" + json.dumps(results))


async def _run(function: Case, world: World) -> dict[str, Any]:
    result: dict[str, Any] = {}
    started = time.monotonic()
    try:
        async with asyncio.timeout(world.setting.options.get("seconds", 180)):
            result["facts"] = await function(world)
    except Exception:
        result["failed"] = traceback.format_exc()[-6000:]
    finally:
        await world.close()
    result["seconds"] = round(time.monotonic() - started, 1)
    counted = [strict.problems(exchange) for exchange in world.record.exchanges]
    result["bodies"] = sum(bodies for bodies, _, _ in counted)
    result["events"] = sum(events for _, events, _ in counted)
    result["problems"] = [problem for _, _, found in counted for problem in found][:40]
    if not world.record.exchanges:
        result["problems"].append("nothing went over the recorded wire")
    return result
