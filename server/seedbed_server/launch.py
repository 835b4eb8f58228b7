"""The `seedbed` command: says what to install when the server's packages are missing, else runs the CLI."""

import sys
from importlib.util import find_spec

NEEDED = ("typer", "rich", "pydantic_settings")
EXIT_INCOMPLETE = 5


def main() -> None:
    """Run the command line; without the `server` extra, explain and exit with code 5."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"seedbed: this command needs the server's packages ({', '.join(missing)} missing).\n"
            "Install them with:  pip install 'seedbed[gpu]'   (CUDA)\n"
            "or, in a checkout:  ./run setup                  (CUDA or CPU)\n"
            "The client library alone needs none of this: import seedbed.\n"
        )
        raise SystemExit(EXIT_INCOMPLETE)
    from seedbed_server.cli import app

    app()
