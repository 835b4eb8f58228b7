"""`seedbed serve`: one gateway, one engine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
from typing import TYPE_CHECKING

import uvicorn

from seedbed_server.engine.config import ConfigError
from seedbed_server.gateway import logs
from seedbed_server.gateway.app import create_app
from seedbed_server.gateway.child import ChildFactory, config_of
from seedbed_server.gateway.direct import Direct
from seedbed_server.gateway.request import LIVE
from seedbed_server.gateway.state import Gateway
from seedbed_server.models import ModelError, resolve_model
from seedbed_server.store import Store, StoreError, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from seedbed_server.config import ServeSettings

__all__ = ["listen", "new_loop", "serve"]

OK, USAGE, REFUSED = 0, 2, 3
GRACE_SECONDS = 3
SWITCH_SECONDS = 0.0005


def serve(settings: ServeSettings) -> int:
    """Serves until SIGINT or SIGTERM. Returns 0 then, 2 for settings that cannot be used, 3 for a model, an
    engine or a store that cannot be served with. No process is left either way.
    """
    logs.configure(settings.log_level, settings.log_format)
    # The store's writer gives the interpreter away at every statement, and a busy loop keeps it for so long.
    sys.setswitchinterval(SWITCH_SECONDS)
    with contextlib.ExitStack() as stack:
        try:
            source = resolve_model(settings.model, served_name=settings.served_name)
            listener = stack.enter_context(listen(settings.host, settings.port))
            store = Store(place_of(settings.store_name(source.served_name), settings.store_folder))
            stack.callback(store.close)
            children = ChildFactory(store.path, lambda address: config_of(settings, source, address))
            stack.callback(children.close)
        except ModelError as error:
            return _complain(str(error), REFUSED)
        except (ConfigError, StoreError, OSError) as error:
            return _complain(str(error), USAGE)
        _say(f"Starting {source.served_name}. The engine's log is {children.log_path}")
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(_run(Gateway(settings, store, children), listener))


def new_loop() -> asyncio.AbstractEventLoop:
    """The loop that the engine has as well, where it exists for this system: half the time per event."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class _Server(uvicorn.Server):
    """uvicorn that leaves signals alone: ours end the engine as well."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing to capture."""
        yield


async def _run(gateway: Gateway, listener: socket.socket) -> int:
    server = _Server(
        uvicorn.Config(
            Direct(create_app(gateway)),
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=GRACE_SECONDS,
            # Longer than the pools of clients keep a connection, or they meet one that closes.
            timeout_keep_alive=75,
        )
    )
    with _signals() as stop:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        settled = asyncio.create_task(gateway.link.wait_settled())
        stopped = asyncio.create_task(stop.wait())
        code = OK
        await asyncio.wait((serving, settled, stopped), return_when=asyncio.FIRST_COMPLETED)
        if gateway.link.failed:
            code = _complain(gateway.link.problem or "the engine did not start", REFUSED)
        elif settled.done():
            # What the start has made stays: the collector need not look at it at every turn.
            gc.collect()
            gc.freeze()
            _say(_announcement(gateway, listener))
            await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            _say("Ending.")
        server.should_exit = True
        settled.cancel()
        stopped.cancel()
        await serving
        return code


@contextlib.contextmanager
def _signals() -> Iterator[asyncio.Event]:
    """An event that the first SIGINT or SIGTERM sets; further ones change nothing."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop.set)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, before minutes are spent on loading a model. Raises OSError with a remedy."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio switches Nagle's algorithm off; without, every answer waits 40 ms for
    # it.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
    except OSError as error:
        listener.close()
        raise OSError(
            f"port: {host}:{port} cannot be listened on ({error.strerror}); stop what listens there, "
            "or use another --port (0 takes a free one)"
        ) from None
    return listener


def _announcement(gateway: Gateway, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    model = gateway.model
    return f"""
{model} (version {gateway.updates.version}) is served at {url}/v1

  from openai import OpenAI
  client = OpenAI(base_url="{url}/v1", api_key="none")
  answer = client.chat.completions.create(
      model="{model}", messages=[{{"role": "user", "content": "What is the capital of France?"}}]
  )
  print(answer.choices[0].message.content)
  client.post("/feedback", cast_to=object, body={{"completion_id": answer.id, "reward": 1.0}})

The unperturbed model is "{model}{LIVE}". How far it has got: {url}/v1/status
The store is {gateway.store.place.name}; a later start goes on from it. Ctrl-C ends this server.
"""


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _complain(text: str, code: int) -> int:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"seedbed: {text}\n")
        sys.stderr.flush()
    return code
