"""What can go wrong with a store; every message names the file or the field, the value and the remedy."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError

__all__ = ["StoreBusy", "StoreError", "StoreLocked", "StoreMismatch", "reason_of"]


class StoreError(RuntimeError):
    """The store cannot do what was asked. Nothing was kept of it, unless the message says that it may be."""


class StoreLocked(StoreError):
    """Another process has the store open."""


class StoreMismatch(StoreError):
    """The store belongs to another base model, dtype, scope or noise."""


class StoreBusy(StoreError):
    """More writes are waiting than the queue holds; try again."""


def reason_of(error: Exception) -> str:
    """What the database itself said, in one line."""
    return " ".join(str(error.orig if isinstance(error, DBAPIError) else error).split())
