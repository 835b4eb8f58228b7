"""Agents that do not give up: each asks, and posts its reward until somebody has acknowledged it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

__all__ = ["Load", "Posted"]

KEPT = {"accepted", "duplicate", "replaced", "late"}
PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Posted:
    """One reward that was posted, perhaps more than once."""

    reward_id: str
    episode_id: str
    reward: float


@dataclass
class Load:
    """Threads that ask a server, whatever happens to it.

    Attributes:
        url: where it is now; a server that was started again may be elsewhere.
        acknowledged: rewards that the server said it has.
        posted: all that were sent, acknowledged or not.
        results: how often each answer was given.
        refused: messages of errors that were answered, for people.
    """

    url: Callable[[], str]
    model: str
    agents: int = 4
    acknowledged: dict[str, Posted] = field(default_factory=dict)
    posted: dict[str, Posted] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(self.agents)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float = 120.0) -> None:
        """Lets every agent end what it has begun: no reward is left without an answer."""
        self._end.set()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive(), "an agent still waits for an acknowledgement"

    def _run(self, number: int) -> None:
        rng = random.Random(number)
        turn = 0
        with httpx.Client(timeout=30) as http:
            while not self._end.is_set():
                about = self._ask(http)
                if about is None:
                    continue
                posted = Posted(f"agent{number}-{turn}", about["episode_id"], rng.random())
                self._post(http, posted, rng)
                turn += 1

    def _ask(self, http: httpx.Client) -> dict[str, Any] | None:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": "one two three"}],
            "max_tokens": 4,
        }
        try:
            answer = http.post(f"{self.url()}/v1/chat/completions", json=body)
            if answer.status_code == 200:
                about: dict[str, Any] = answer.json()["seedbed"]
                return about
            self._refused(answer)
        except (httpx.HTTPError, ValueError):
            pass
        self._end.wait(PAUSE_SECONDS)
        return None

    def _post(self, http: httpx.Client, posted: Posted, rng: random.Random) -> None:
        """Posts until it is acknowledged; now and then once more, as a client that lost the answer does."""
        again = rng.random() < 0.2
        with self._lock:
            self.posted[posted.reward_id] = posted
        while True:
            try:
                answer = http.post(f"{self.url()}/v1/feedback", json=posted.__dict__)
                if answer.status_code == 200 and (result := answer.json()["result"]) in KEPT:
                    with self._lock:
                        self.acknowledged[posted.reward_id] = posted
                        self.results[result] = self.results.get(result, 0) + 1
                    if not again:
                        return
                    again = False
                    continue
                self._refused(answer)
                assert answer.status_code in (429, 503), answer.text
            except (httpx.HTTPError, ValueError):
                pass
            time.sleep(PAUSE_SECONDS)

    def _refused(self, answer: httpx.Response) -> None:
        with self._lock:
            self.refused.append(f"{answer.status_code} {answer.text[:300]}")
