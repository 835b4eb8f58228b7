"""Putting a finished file where it belongs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["put_in_place"]


def put_in_place(finished: Path, target: Path) -> None:
    """Gives a finished file its name; a file that has it already is not replaced.

    Afterwards `finished` may still be there. Raises OSError, FileExistsError.
    """
    try:
        os.link(finished, target)
    except FileExistsError:
        raise
    except OSError:
        # A file system without links, such as that of a memory stick.
        if target.exists():
            raise FileExistsError(f"{target} exists already") from None
        finished.rename(target)
