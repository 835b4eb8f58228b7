"""What can go wrong with a store; every message names the file or the field, the value and the remedy."""

from __future__ import annotations

__all__ = ["StoreBusy", "StoreError", "StoreLocked", "StoreMismatch"]


class StoreError(RuntimeError):
    """The store cannot do what was asked. Nothing that failed with this was kept."""


class StoreLocked(StoreError):
    """Another process has the store open."""


class StoreMismatch(StoreError):
    """The store belongs to another base model, dtype, scope or noise."""


class StoreBusy(StoreError):
    """More writes are waiting than the queue holds; try again."""
