"""Which episodes explore, when only a share of the traffic does."""

from __future__ import annotations

import hashlib

__all__ = ["explores"]


def explores(episode_id: str, share: float) -> bool:
    """Whether a new episode is answered by a member, `share` (0 to 1) of all being so.

    A hash of the episode's id decides: independent of its task, of the time and of the episodes beside it, so
    that explored episodes and controls see the same traffic.
    """
    digest = hashlib.blake2b(episode_id.encode(), digest_size=8, person=b"explore").digest()
    return int.from_bytes(digest, "little") < share * 2**64
