"""Ids that the gateway mints: they sort by time, so that the store's indexes grow at one end."""

from __future__ import annotations

import secrets
import time

__all__ = [
    "CHAT_PREFIX",
    "COMPLETION_PREFIX",
    "RESPONSE_PREFIX",
    "completion_id",
    "episode_id",
    "minted_at",
]

CHAT_PREFIX, COMPLETION_PREFIX, RESPONSE_PREFIX = "chatcmpl-", "cmpl-", "resp_"


def episode_id() -> str:
    """A new episode id, `ep_` and 24 hexadecimal digits."""
    return "ep_" + _stamp()


def completion_id(prefix: str = CHAT_PREFIX) -> str:
    """A new completion id. It is the `id` of the OpenAI object as well."""
    return prefix + _stamp()


def minted_at(name: str) -> float | None:
    """When an id was minted, in seconds since 1970; None for one that no gateway minted."""
    for prefix in ("ep_", CHAT_PREFIX, COMPLETION_PREFIX, RESPONSE_PREFIX):
        stamp = name.removeprefix(prefix)
        if len(stamp) == 24 and stamp != name and all(digit in "0123456789abcdef" for digit in stamp):
            return int(stamp[:12], 16) / 1000
    return None


def _stamp() -> str:
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(6)}"
