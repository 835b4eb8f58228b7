"""Session keys: an API key that stands for one episode. Only its hash is kept."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["bearer", "client_of", "hash_of", "is_session", "mint"]

PREFIX = "sbk_"


def mint() -> tuple[str, bytes]:
    """A new session key, of 256 random bits, and its hash."""
    key = PREFIX + secrets.token_urlsafe(32)
    return key, hash_of(key)


def hash_of(key: str) -> bytes:
    """SHA-256; a key with this much randomness needs no salt and no slow hash."""
    return hashlib.sha256(key.encode()).digest()


def is_session(key: str) -> bool:
    """Whether a key looks like one of ours, so that a wrong one is never taken for somebody else's."""
    return key.startswith(PREFIX)


def bearer(headers: Mapping[str, str]) -> str:
    """The API key of a request; empty without one."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def client_of(key: str) -> bytes:
    """Sixteen bytes that tell API keys apart and give none away."""
    return hashlib.blake2b(key.encode(), digest_size=16, person=b"client").digest()
