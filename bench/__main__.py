"""`python -m bench NAME [--json PATH] [OPTIONS]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from bench.harness import print_result, write_result
from bench.registry import BENCHES


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run bench", description="Run one benchmark.")
    names = parser.add_subparsers(dest="name", metavar="NAME", required=True)
    chosen = next((word for word in sys.argv[1:] if word in BENCHES), None)
    for name, entry in BENCHES.items():
        sub = names.add_parser(name, help=entry.summary, description=entry.summary)
        sub.add_argument(
            "--json", type=Path, metavar="PATH", help="where the result goes, as one JSON object"
        )
        if name == chosen:
            entry.load().add_arguments(sub)
    arguments = parser.parse_args()
    console = Console(stderr=True)
    try:
        result = BENCHES[arguments.name].load().run(arguments, console)
    except KeyboardInterrupt:
        console.print("interrupted; nothing was written")
        return 130
    print_result(result, Console())
    if arguments.json:
        write_result(result, arguments.json)
        console.print(f"written to {arguments.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
