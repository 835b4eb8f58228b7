"""Commands about versions: checking a journal, going back, and carrying weights elsewhere."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from seedbed_server.cli_base import (
    NO,
    NO_SERVER,
    REFUSED,
    USAGE,
    StoreFolder,
    StoreName,
    errors,
    fail,
    fetch_if_missing,
    interruptible,
    output,
    store_at,
)

__all__ = ["add_to"]

ROWS_SHOWN = 20
ROLLBACK_SECONDS = 120.0

journal_app = typer.Typer(help="The journal of a store.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Puts these commands among the others."""
    app.add_typer(journal_app, name="journal")
    app.command("rollback")(rollback)
    app.command("export")(export)
    app.command("import")(import_)


@journal_app.command("verify")
def verify(
    store: StoreName,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    store_folder: StoreFolder = None,
) -> None:
    """Check chain, order, digests and records of a whole journal; exit code 0 only for a sound one."""
    place = store_at(store, store_folder)
    with interruptible():
        from seedbed_server.store import StoreError
        from seedbed_server.store.verify import verify as run

        try:
            report = run(place)
        except StoreError as error:
            raise fail(str(error), USAGE) from None
    if as_json:
        output.print_json(json.dumps(report))
    else:
        _show(report)
    if not report["sound"]:
        raise typer.Exit(NO)


def rollback(
    to: Annotated[int, typer.Option(min=0, help="The version to go back to; 0: the base.")],
    url: Annotated[str, typer.Option(help="Where the server listens.")] = "http://127.0.0.1:8600",
    reason: Annotated[str, typer.Option(help="Kept in the journal.")] = "requested",
) -> None:
    """Bring back the weights of an older version, as a new version; nothing is deleted."""
    import httpx

    target = f"{url.rstrip('/')}/v1/learning/rollback"
    try:
        reply = httpx.post(target, json={"to_version": to, "reason": reason}, timeout=ROLLBACK_SECONDS)
        content = reply.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise fail(f"{url} gives no answer ({error}). Is `seedbed serve` running there?", NO_SERVER) from None
    if reply.status_code >= 400:
        message = content.get("error", {}).get("message", reply.text)
        code = USAGE if reply.status_code == 400 else NO if reply.status_code < 500 else REFUSED
        raise fail(str(message), code)
    done = content["status"] == "done"
    output.print(
        f"version {content['version']} has the weights of version {content['to_version']}"
        + ("" if done else "; it is in the journal and will be live when the engine has made it")
    )
    output.print(f"digest {content['digest']}", markup=False)


def export(
    store: StoreName,
    to: Annotated[Path, typer.Option(help="Where to; must not exist.")],
    kind: Annotated[
        Literal["folder", "difference", "adaptation"],
        typer.Option(help="A Hugging Face folder, safetensors of the difference, or one small file."),
    ],
    model: Annotated[
        str | None, typer.Option(help="The model that the journal started from; an adaptation needs none.")
    ] = None,
    version: Annotated[int | None, typer.Option(min=0, help="Left out: the newest.")] = None,
    store_folder: StoreFolder = None,
) -> None:
    """Write one version of the weights to where other programs or another server can take it."""
    place = store_at(store, store_folder)
    if model is not None and kind != "adaptation":
        fetch_if_missing(model)
    with interruptible():
        from seedbed_server.gateway.export import export as run

        raise typer.Exit(run(place, model, version, to, kind))


def import_(
    adaptation: Annotated[Path, typer.Option(help="A file of `seedbed export --kind adaptation`.")],
    model: Annotated[str, typer.Option(help="The base that it was made from.")],
    store: Annotated[
        str, typer.Option(help="The store to make: a file that is not there, or an empty database.")
    ],
    store_folder: StoreFolder = None,
) -> None:
    """Make a store whose server goes on from the version in an adaptation. Twice: a fork."""
    place = store_at(store, store_folder, exists=False)
    fetch_if_missing(model)
    with interruptible():
        from seedbed_server.gateway.adopt import adopt

        raise typer.Exit(adopt(adaptation, model, place))


def _show(report: dict[str, Any]) -> None:
    rows = report["versions"]
    table = Table("version", "kind", "weights of", "digest", "", box=None)
    shown = [row for row in rows[:-ROWS_SHOWN] if row["problems"]] + rows[-ROWS_SHOWN:]
    for row in shown:
        table.add_row(
            str(row["version"]),
            row["kind"],
            "-" if row["to_version"] is None else str(row["to_version"]),
            "not applied" if row["digest"] is None else row["digest"][:16],
            "; ".join(row["problems"]) or "ok",
        )
    if len(shown) < len(rows):
        output.print(f"{len(rows) - len(shown)} more versions are sound and not shown.")
    output.print(table)
    if report["sound"]:
        output.print(f"The journal is sound: {len(rows)} versions.")
        return
    first = report["findings"][0]
    errors.print(f"seedbed: version {first['version']}: {first['problem']}", style="red", markup=False)
    errors.print(report["remedy"], markup=False)
