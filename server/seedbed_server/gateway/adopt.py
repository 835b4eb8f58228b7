"""`seedbed import`: an adaptation becomes a fresh store, once an engine has made its weights."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from seedbed.v1 import engine_pb2 as pb
from seedbed_server.files import put_in_place
from seedbed_server.gateway import adaptation as adaptations
from seedbed_server.gateway.adaptation import AdaptationError
from seedbed_server.gateway.offline import (
    OK,
    REFUSED,
    USAGE,
    complain,
    fresh_engine,
    say,
    split_scope,
    start,
    tried,
)
from seedbed_server.gateway.ways import Way
from seedbed_server.models import resolve_model
from seedbed_server.store import Store, journal, runs
from seedbed_server.store.rows import RunRow

if TYPE_CHECKING:
    import sqlalchemy as sa

    from seedbed.v1.journal_pb2 import Adaptation
    from seedbed_server.gateway.link_types import Child
    from seedbed_server.store import Place

__all__ = ["adopt"]


def adopt(file: Path, model: str, store: Place) -> int:
    """Makes a store whose server has the weights of an adaptation. Returns 0, or an exit code of the command
    line; nothing is left where it fails.

    Args:
        model: the base; another one is refused with both digests.
        store: a file that does not exist and whose parent does, or an empty database.
    """

    def work(stack: contextlib.ExitStack) -> int:
        try:
            adaptation = adaptations.read(file)
        except AdaptationError as error:
            return complain(f"--adaptation: {file}: {error}", USAGE)
        target = store.beside
        if store.is_file and (target.exists() or not target.parent.is_dir()):
            return complain(
                f"--store: {target} exists already, or its parent does not; name a new one", USAGE
            )
        source = resolve_model(model)
        if not store.is_file:
            opened = stack.enter_context(Store(store))
            if opened.read_now(runs.find) is not None:
                return complain(f"--store: {store.name} holds a run already; name an empty database", USAGE)
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.importing-", dir=target.parent))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        run = _run_of(adaptation)
        child, _ = start(stack, folder / "import", source, run, f"make version {adaptation.version}")
        problem = asyncio.run(_prove(child, run, adaptation, file))
        if problem is not None:
            return complain(problem, REFUSED)
        if store.is_file:
            with Store(folder / "store.sqlite") as made:
                _write(made, adaptation)
            wal = folder / "store.sqlite-wal"
            assert not wal.exists(), "a closed store is one file"
            put_in_place(folder / "store.sqlite", target)
        else:
            _write(opened, adaptation)
        say(f"version  {adaptation.version}\ndigest   {adaptation.digest.hex()}\nwritten  {store.name}")
        say(f"Serve it: {shlex.join(_command(model, store, run))}")
        return OK

    return tried(work, "make the weights of this adaptation")


async def _prove(child: Child, run: RunRow, adaptation: Adaptation, file: Path) -> str | None:
    """Makes the weights. Returns why they cannot be, with both values."""
    async with fresh_engine(child, 1) as fresh:
        found = fresh.identity()
        for name in ("base_digest", "dtype", "scope", "noise_version", "rank", "start_digest"):
            wanted, given = getattr(run, name), getattr(found, name)
            if wanted != given:
                if isinstance(wanted, bytes):
                    wanted, given = wanted.hex(), given.hex()
                return (
                    f"{name}: the adaptation {file} was made for {wanted} (model {run.model!r}), and the "
                    f"model {found.model!r} has {given}; name the model that it was made for"
                )
        way = Way(adaptation.version, adaptation.digest, "", 0, tuple(adaptation.records))
        state = await fresh.restore(way.unchecked())
    if (state.version, state.digest) != (way.version, way.digest):
        return (
            f"digest: the records make {state.digest.hex()}, and the adaptation says {way.digest.hex()}; "
            "export it again"
        )
    return None


def _write(store: Store, adaptation: Adaptation) -> None:
    now = time.time()
    run = replace(_run_of(adaptation), created_at=now)
    rows = adaptations.rows_of(adaptation, now)

    def job(connection: sa.Connection) -> None:
        runs.insert(connection, run)
        for row in rows:
            journal.append(connection, row)

    store.submit(job).result(600)


def _command(model: str, store: Place, run: RunRow) -> list[str]:
    """The server's command, with what its weights demand."""
    scope, exclude = split_scope(run.scope)
    command = ["seedbed", "serve", f"--model={model}", f"--store={store.name}", f"--dtype={run.dtype}"]
    command += [f"--scope={scope}"] if scope != "full" else []
    return command + ([f"--exclude={','.join(exclude)}"] if exclude else [])


def _run_of(adaptation: Adaptation) -> RunRow:
    rounding = "nearest" if adaptation.rounding == pb.ROUNDING_NEAREST else "stochastic"
    return RunRow(
        created_at=0.0,
        model=adaptation.model,
        base_digest=adaptation.base_digest,
        start_digest=adaptation.start_digest,
        dtype=adaptation.dtype,
        scope=adaptation.scope,
        noise_version=adaptation.noise_version,
        rank=adaptation.rank,
        settings={"rounding": rounding},
        term=0,
    )
