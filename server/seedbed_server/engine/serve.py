"""`python -m seedbed_server.engine --config JSON`: one engine, until it is told to end.

Prints one line to standard output: `{"event": "ready", ...}` when it serves, or `{"event": "refused",
"message": ...}` with exit code 3. Everything else goes to standard error. Exit code 4: the weights could not
be accounted for any more; 5: no gateway was heard for too long.
"""

from __future__ import annotations

# In every process that SGLang spawns this module is imported again, before SGLang is.
from seedbed_server.engine import cpu

cpu.install()

import argparse
import asyncio
import contextlib
import fcntl
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seedbed_server.engine.config import ConfigError, EngineConfig

REFUSED, BROKEN, ORPHANED = 3, 4, 5
SWITCH_SECONDS = 0.0005

logger = logging.getLogger("seedbed.engine")


def main() -> int:
    """Runs one engine; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m seedbed_server.engine", description=__doc__)
    parser.add_argument("--config", required=True, help="settings as one JSON object")
    arguments = parser.parse_args()
    say = _own_standard_output()
    # The threads of gRPC and of the tokenizer hand over to a loop that is busy with tokens, and wait for it.
    sys.setswitchinterval(SWITCH_SECONDS)
    from seedbed_server.engine.host import RefusedError

    try:
        config = EngineConfig.from_json(arguments.config)
        logging.basicConfig(level=config.log_level.upper(), stream=sys.stderr)
        with _address(config.address):
            return _run(config, say)
    except (ConfigError, RefusedError) as error:
        say({"event": "refused", "message": str(error)})
        return REFUSED


def _own_standard_output() -> Any:
    """Keeps standard output for our one line; whatever prints there goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(event: dict[str, Any]) -> None:
        out.write(json.dumps(event) + "\n")
        out.flush()

    return say


@contextlib.contextmanager
def _address(address: str) -> Iterator[None]:
    """Holds the address for this process, before minutes are spent on loading a model."""
    from seedbed_server.engine.host import RefusedError

    if not address.startswith("unix:"):
        yield
        return
    path = Path(address.removeprefix("unix:"))
    if len(os.fsencode(path)) > 100:
        raise RefusedError(
            f"address: {path} is longer than a unix socket's name may be; use a shorter folder"
        )
    if not path.parent.is_dir():
        raise RefusedError(f"address: there is no folder {path.parent}; make it first")
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RefusedError(
                f"address: another engine serves on {path}; stop it, or give this one another address"
            ) from None
        path.unlink(missing_ok=True)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _run(config: EngineConfig, say: Any) -> int:
    from seedbed_server.engine import host
    from seedbed_server.models.errors import ModelError
    from seedbed_server.models.folder import check_folder

    config = host.resolve(config)
    try:
        check_folder(Path(config.model_path))
    except ModelError as error:
        raise host.RefusedError(f"model_path: {error}") from error
    engine = host.start(config)
    try:
        return int(engine.loop.run_until_complete(_serve(engine, config, say)))
    finally:
        engine.shutdown()


async def _serve(engine: Any, config: EngineConfig, say: Any) -> int:
    import grpc
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc

    from seedbed.v1 import engine_pb2_grpc
    from seedbed_server.engine import control, host
    from seedbed_server.engine.service import EngineService

    try:
        description = await host.describe(engine)
        host.check_hooks(description)
        await host.check_isolation(engine)
        description = await host.describe(engine)
        host.check_reach(description)
    except control.ControlError as error:
        raise host.RefusedError(str(error)) from error
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    service = EngineService(engine, config, description)
    server = grpc.aio.server(
        options=[("grpc.max_receive_message_length", 512 << 20), ("grpc.max_send_message_length", 64 << 20)]
    )
    engine_pb2_grpc.add_EngineServiceServicer_to_server(service, server)
    state = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(state, server)
    old_mask = os.umask(0o177)
    try:
        if server.add_insecure_port(config.address) == 0:
            raise host.RefusedError(f"address: {config.address} cannot be bound; is another engine there?")
    except RuntimeError as error:
        raise host.RefusedError(
            f"address: {config.address} cannot be bound ({error}); choose another one"
        ) from error
    finally:
        os.umask(old_mask)
    await server.start()
    for name in ("", "seedbed.v1.EngineService"):
        await state.set(name, health_pb2.HealthCheckResponse.SERVING)
    service.heard = time.monotonic()
    say({"event": "ready", "address": config.address})
    code = await _until(stop, service, config)
    for name in ("", "seedbed.v1.EngineService"):
        await state.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
    await server.stop(2)
    return code


async def _until(stop: asyncio.Event, service: Any, config: EngineConfig) -> int:
    """Waits for a signal, for weights that are broken, or for silence; returns the exit code."""
    while not stop.is_set():
        if service.broken.is_set():
            logger.error("the weights cannot be accounted for; this engine ends")
            return BROKEN
        silence = time.monotonic() - service.heard
        if config.orphan_seconds and silence > config.orphan_seconds:
            logger.error("no gateway was heard for %.0f s; this engine ends", silence)
            return ORPHANED
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
