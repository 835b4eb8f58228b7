"""How many requests may be on their way, and what the next one is told when there are too many."""

from __future__ import annotations

import math
from collections import deque

from seedbed_server.gateway.errors import busy

__all__ = ["Admission", "wait_seconds"]

WINDOW_SECONDS = 60.0
MAX_WAIT = 120


def wait_seconds(waiting: int, finished: int, window: float) -> int:
    """When `waiting` requests will have been answered at the speed of `finished` in `window` seconds.

    At least 1 and at most 120 seconds; 5 where nothing was finished yet that would tell.
    """
    if finished <= 0 or window <= 0:
        return 5
    return max(1, min(MAX_WAIT, math.ceil(waiting * window / finished)))


class Admission:
    """Counts the requests that are being answered, and those that were in the last minute."""

    def __init__(self, max_queued: int, started: float) -> None:
        self._max_queued = max_queued
        self._started = started
        self._finished: deque[float] = deque(maxlen=100_000)
        self.in_flight = 0

    def enter(self, running: int, now: float) -> None:
        """Lets one in; the engine answers `running` at a time. Raises ApiError 429."""
        limit = running + self._max_queued
        if self.in_flight >= limit:
            while self._finished and self._finished[0] < now - WINDOW_SECONDS:
                self._finished.popleft()
            window = min(WINDOW_SECONDS, now - self._started)
            seconds = wait_seconds(self.in_flight, len(self._finished), window)
            raise busy(
                f"{self.in_flight} requests are being answered or wait, which is all that may "
                f"(max_queued_requests: {self._max_queued}); try again in {seconds} s",
                seconds,
            )
        self.in_flight += 1

    def leave(self, now: float) -> None:
        """One has been answered, or has gone."""
        self.in_flight -= 1
        self._finished.append(now)
