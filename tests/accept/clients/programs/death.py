"""The engine dies while clients read: what each of them is told, and that the same calls work afterwards.

`options`: `flag`, a file that the program writes when every stream has begun; whoever runs it kills the
engine then.
"""

import asyncio
from pathlib import Path
from typing import Any

from kit import World, case, main

MESSAGES: Any = [{"role": "user", "content": "Tell me a long story."}]


@case
async def deaths(w: World) -> Any:
    client, patient = w.client(), w.client(retries=100)
    endless: dict[str, Any] = {"model": w.model, "extra_body": {"ignore_eos": True}}
    calls: dict[str, Any] = {
        "chat": lambda: client.chat.completions.create(
            messages=MESSAGES, max_tokens=450, stream=True, **endless
        ),
        "completions": lambda: client.completions.create(
            prompt="Once", max_tokens=450, stream=True, **endless
        ),
        "responses": lambda: client.responses.create(
            model=w.model, input="Tell me a long story.", max_output_tokens=450, stream=True
        ),
    }
    begun = {name: asyncio.Event() for name in calls}

    async def read(name: str) -> dict[str, Any]:
        count = 0
        try:
            async for part in await calls[name]():
                count += 1
                begun[name].set()
                if getattr(part, "type", None) == "error":
                    # How `/v1/responses` says it: an event like the others.
                    return {"read": count, "kind": "APIError", "code": part.code, "message": part.message}
        except Exception as error:
            return {
                "read": count,
                "kind": type(error).__name__,
                "code": getattr(error, "code", None),
                "message": str(error),
            }
        return {"read": count, "kind": None}

    async def whole() -> dict[str, Any]:
        return await w.raises(
            lambda: client.chat.completions.create(messages=MESSAGES, max_tokens=450, **endless)
        )

    async def patiently() -> dict[str, Any]:
        """The SDK's own retries carry a call over the restart, if they may go on for long enough."""
        answer = await patient.chat.completions.create(messages=MESSAGES, max_tokens=450, **endless)
        return {"id": answer.id, "requests": [e.status for e in w.record.exchanges if e.retry]}

    readers = [asyncio.create_task(read(name)) for name in calls]
    waiting = [asyncio.create_task(whole()), asyncio.create_task(patiently())]
    async with asyncio.timeout(60):
        for event in begun.values():
            await event.wait()
    Path(w.setting.options["flag"]).touch()
    async with asyncio.timeout(60):
        streams = dict(zip(calls, await asyncio.gather(*readers), strict=True))
        failed = await waiting[0]
    down = [await w.raises(calls[name]) for name in calls]
    carried = await waiting[1]
    again = {}
    for name, call in calls.items():
        again[name] = len([part async for part in await call()])
    return {
        "streams": streams, "whole": failed, "down": down, "carried": carried, "again": again
    }  # fmt: skip


if __name__ == "__main__":
    main()
