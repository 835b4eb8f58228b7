"""`seedbed export`: one version, as a folder that anything loads, as a difference, or as an adaptation."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from seedbed_server.gateway import adaptation as adaptations
from seedbed_server.gateway.adaptation import AdaptationError
from seedbed_server.gateway.offline import NO, OK, USAGE, complain, fresh_engine, say, start, tried
from seedbed_server.gateway.replay import kept
from seedbed_server.gateway.ways import find_way
from seedbed_server.models import resolve_model
from seedbed_server.store import Store, StoreError, runs

if TYPE_CHECKING:
    from seedbed_server.gateway.link_types import Child
    from seedbed_server.gateway.ways import Way
    from seedbed_server.store import Place
    from seedbed_server.store.rows import RunRow

__all__ = ["Kind", "export"]

Kind: TypeAlias = Literal["folder", "difference", "adaptation"]


def export(store: Place, model: str | None, version: int | None, to: Path, kind: Kind) -> int:
    """Writes a version and prints its digest. Returns 0, or an exit code of the command line.

    Args:
        store: not served meanwhile.
        model: the base, from which the weights are made again; an adaptation does without.
        version: None: the newest that was published.
        to: must not exist; its parent must.
    """

    def work(stack: contextlib.ExitStack) -> int:
        target = to.expanduser().absolute()
        if target.exists() or not target.parent.is_dir():
            return complain(f"--to: {target} exists already, or its parent does not; name a new one", USAGE)
        opened = stack.enter_context(Store(store))
        run, rows = opened.read_now(kept)
        if run is None:
            return complain(f"store: {store.name} holds no run yet; serve with it first", USAGE)
        published = len([row for row in rows if row.digest is not None])
        wanted = published if version is None else version
        if not 0 <= wanted <= published:
            return complain(f"--version: {wanted} is not published; give one from 0 to {published}", USAGE)
        if kind == "adaptation":
            try:
                made = adaptations.adaptation_of(run, rows, wanted)
                size = adaptations.write(made, target)
            except AdaptationError as error:
                raise StoreError(str(error)) from None
            _report(target, size, wanted, made.digest)
            return OK
        if model is None:
            return complain(f"--model: a {kind} is made from the base again; name the model", USAGE)
        source = resolve_model(model)
        way = find_way(opened, rows, wanted, run.start_digest)
        child, _ = start(stack, opened.path, source, run, f"make version {wanted}")
        return asyncio.run(_write(child, run, way, target, kind, store.name))

    return tried(work, "make this version")


async def _write(child: Child, run: RunRow, way: Way, target: Path, kind: Kind, store: str) -> int:
    async with fresh_engine(child, run.term + 1) as fresh:
        runs.check_identity(run, fresh.identity(), store)
        with contextlib.ExitStack() as stack:
            if kind == "difference":
                work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
                stack.callback(shutil.rmtree, work, ignore_errors=True)
                await fresh.snapshot(work / "base")
            state = await fresh.restore(way)
            if (state.version, state.digest) != (way.version, way.digest):
                return complain(
                    f"digest: {state.digest.hex()} was made and {way.digest.hex()} is on record; nothing was "
                    "written",
                    NO,
                )
            if kind == "folder":
                size = await fresh.snapshot(target)
            else:
                from seedbed_server.engine.difference import write_difference

                await fresh.snapshot(work / "version")
                about = {
                    "base_digest": run.base_digest.hex(),
                    "digest": way.digest.hex(),
                    "version": str(way.version),
                }
                size = await asyncio.to_thread(
                    write_difference, work / "base", work / "version", target, about
                )
    _report(target, size, way.version, way.digest)
    return OK


def _report(target: Path, size: int, version: int, digest: bytes) -> None:
    say(f"version  {version}\ndigest   {digest.hex()}\nwritten  {target} ({size:,} bytes)")
