"""Prometheus metrics in base units, few enough to know by heart."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["Metrics"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """One set for one gateway, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.requests = Counter(
            "seedbed_requests", "OpenAI requests by route and HTTP status.", ["route", "status"], registry=r
        )
        self.first_byte = Histogram(
            "seedbed_time_to_first_byte_seconds",
            "From request to the first byte of an answer.",
            ["route"],
            buckets=_SECONDS,
            registry=r,
        )
        self.duration = Histogram(
            "seedbed_completion_duration_seconds",
            "From request to the last byte of an answer.",
            ["route"],
            buckets=_SECONDS,
            registry=r,
        )
        self.in_flight = Gauge("seedbed_requests_in_flight", "OpenAI requests being answered.", registry=r)
        self.tokens = Counter("seedbed_tokens", "Tokens of finished completions.", ["kind"], registry=r)
        self.rewards = Counter("seedbed_rewards", "Posted rewards by their answer.", ["result"], registry=r)
        self.episodes = Counter("seedbed_episodes", "Episodes opened by POST /v1/episodes.", registry=r)
        self.implicit = Counter(
            "seedbed_implicit_requests",
            "Requests that named no episode: opened one, or continued one.",
            ["episode"],
            registry=r,
        )
        self.retries = Counter(
            "seedbed_retries",
            "Requests marked as retries: joined a running answer, replayed one, or repeated a cancelled one.",
            ["outcome"],
            registry=r,
        )
        self.updates = Counter("seedbed_updates", "Updates applied since the start.", registry=r)
        self.no_steps = Counter(
            "seedbed_populations_without_step",
            "Populations that made no step, by reason.",
            ["reason"],
            registry=r,
        )
        self.dropped = Counter(
            "seedbed_episodes_dropped",
            "Episodes that had no reward when their population closed.",
            registry=r,
        )
        self.stale = Counter(
            "seedbed_episodes_stale",
            "Episodes that counted in a population after their own.",
            registry=r,
        )
        self.paused = Gauge("seedbed_learning_paused", "1 while learning is paused.", registry=r)
        self.version = Gauge("seedbed_model_version", "Version of the live weights.", registry=r)
        self.reward_mean = Gauge(
            "seedbed_population_reward_mean", "Raw reward mean of the last closed population.", registry=r
        )
        self.reward_spread = Gauge(
            "seedbed_population_reward_spread", "Spread over members (ddof 0) of the same.", registry=r
        )
        self.update_pause = Histogram(
            "seedbed_update_pause_seconds",
            "Seconds without generation at an update.",
            buckets=_SECONDS,
            registry=r,
        )
        self.engine_ready = Gauge("seedbed_engine_ready", "1 while the engine answers.", registry=r)
        self.engine_starts = Counter("seedbed_engine_starts", "Engine processes started.", registry=r)
