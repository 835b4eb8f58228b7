"""Where everything is kept that nobody gave another place."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["home"]


def home() -> Path:
    """SEEDBED_HOME, or ~/.local/share/seedbed."""
    return Path(os.environ.get("SEEDBED_HOME") or "~/.local/share/seedbed").expanduser()
