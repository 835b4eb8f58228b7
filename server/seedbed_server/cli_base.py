"""What the commands share: exit codes, where they write, and what every one of them has to refuse."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from seedbed_server.store import Place

OK, NO, USAGE, REFUSED, NO_SERVER, INTERRUPTED = 0, 1, 2, 3, 4, 130

errors = Console(stderr=True, soft_wrap=True, highlight=False)
output = Console(soft_wrap=True, highlight=False)


StoreName = Annotated[str, typer.Option(help="The store's SQLite file or URL; no server may have it open.")]
StoreFolder = Annotated[
    Path | None, typer.Option(help="What lies beside a store with a URL, if its server was told a folder.")
]


def store_at(store: str, folder: Path | None, *, exists: bool = True) -> "Place":
    """The store that a command was given; refused where it cannot be one, or is none yet and should be."""
    from seedbed_server.store import StoreError, place_of

    try:
        place = place_of(store, folder)
    except StoreError as error:
        raise fail(str(error), USAGE) from None
    if exists and place.is_file and not place.beside.is_file():
        raise fail(
            f"--store: {store} is not a file. Give the store that `seedbed serve` was started with.", USAGE
        )
    return place


def fail(message: str, code: int) -> typer.Exit:
    """Write `message` to stderr; to be raised."""
    errors.print(f"seedbed: {message}", style="red", markup=False)
    return typer.Exit(code)


def fetch_if_missing(name: str) -> None:
    """Refuse a model that cannot be used before anything is started, and show the fetch of a missing one."""
    from seedbed_server.models import CATALOGUE, ModelError, resolve_model
    from seedbed_server.models.progress import shown

    with interruptible():
        try:
            if name in CATALOGUE:
                with shown(name) as report:
                    resolve_model(name, report=report)
            else:
                resolve_model(name)
        except ModelError as error:
            raise fail(str(error), REFUSED) from None


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end the command with code 130 and without a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        raise fail("interrupted.", INTERRUPTED) from None
