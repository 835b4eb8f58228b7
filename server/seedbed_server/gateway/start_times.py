"""How long an engine's start takes, so that clients are told when to come back."""

from __future__ import annotations

import math
import time

__all__ = ["StartTimes"]

FIRST_SECONDS = 30.0
"""What a start is taken for before there was one."""
MAX_SECONDS = 120


class StartTimes:
    """When the running start began, and how long the last one took. Times are of the monotonic clock."""

    def __init__(self) -> None:
        self._begun: float | None = None
        self._took = FIRST_SECONDS

    def begin(self, now: float | None = None) -> None:
        """A start begins."""
        self._begun = time.monotonic() if now is None else now

    def end(self, *, ready: bool, now: float | None = None) -> None:
        """It has ended; what it took counts if the engine was `ready`."""
        if ready and self._begun is not None:
            self._took = (time.monotonic() if now is None else now) - self._begun
        self._begun = None

    def seconds_left(self, pause: float = 0.0, now: float | None = None) -> int:
        """Whole seconds, 1 to 120, until an engine may be ready.

        One that starts needs what is left of the time that the last one took; where that has passed already,
        a quarter more of its own. One that is down needs a whole start after its `pause` of so many seconds.
        """
        if self._begun is None:
            left = pause + self._took
        else:
            passed = max(0.0, (time.monotonic() if now is None else now) - self._begun)
            left = max(self._took - passed, passed / 4)
        return max(1, min(MAX_SECONDS, math.ceil(left)))
