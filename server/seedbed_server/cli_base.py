"""What the commands share: exit codes, where they write, and what every one of them has to refuse."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

OK, NO, USAGE, REFUSED, NO_SERVER, INTERRUPTED = 0, 1, 2, 3, 4, 130

errors = Console(stderr=True, soft_wrap=True, highlight=False)
output = Console(soft_wrap=True, highlight=False)


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
