"""What one engine is told when it starts; imports nothing heavy, so that a gateway can make one."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

__all__ = ["ConfigError", "EngineConfig"]


class ConfigError(ValueError):
    """A setting that cannot be used; the message names the field, the value and the remedy."""


_CHOICES = {
    "device": ("auto", "cpu", "cuda"),
    "dtype": ("auto", "float32", "bfloat16"),
    "rounding": ("stochastic", "nearest"),
    "attention": ("auto", "batched", "torch_native"),
}


@dataclass(frozen=True)
class EngineConfig:
    """Settings of one engine. Zero means the default that stands behind a field."""

    model_path: str
    """A local Hugging Face folder, or a hub id."""
    model_name: str
    """The name under which it is served."""
    address: str
    """`unix:/path/engine.sock`, or `127.0.0.1:PORT` (loopback only)."""
    device: str = "auto"
    dtype: str = "auto"
    slots: int = 0
    """Seeds resident at once: 16 on a CPU, 64 on a GPU."""
    max_running_requests: int = 0
    """At most `slots`, so that no request waits for one."""
    context_length: int = 0
    max_total_tokens: int = 0
    """Tokens that the KV cache holds: 16,384 on a CPU; on a GPU what fits."""
    chunked_prefill_size: int = 0
    scope: str = "full"
    """`full`, `all-linear`, or comma-separated patterns of parameter names that take part."""
    exclude: list[str] = field(default_factory=list)
    """Patterns of parameter names that are left alone."""
    rounding: str = "stochastic"
    """How bfloat16 weights are rounded where a record leaves it open."""
    attention: str = "auto"
    """On a CPU: `batched` (ours, the default) or `torch_native` (SGLang's)."""
    hold_seconds: float = 30.0
    """How long a request waits for an update to end before it is refused."""
    orphan_seconds: float = 30.0
    """Exit when no gateway was heard for so long; 0: never."""
    tool_call_parser: str = ""
    """SGLang's parser for tool calls; empty: what the chat template makes clear; `none`: off."""
    reasoning_parser: str = ""
    """SGLang's parser for reasoning; likewise."""
    log_level: str = "warning"

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigError(f"{name}: {value!r} is not known; use one of {', '.join(allowed)}")
        if not self.model_path:
            raise ConfigError("model_path: it is empty; give a local model folder or a hub id")
        if not self.model_name or ":" in self.model_name:
            raise ConfigError(f"model_name: {self.model_name!r} cannot be served; use a name without a colon")
        for name in (
            "slots",
            "max_running_requests",
            "context_length",
            "max_total_tokens",
            "chunked_prefill_size",
        ):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name}: {getattr(self, name)} is negative; use 0 for the default or more")
        for name in ("hold_seconds", "orphan_seconds"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ConfigError(f"{name}: {value} is not a time; use 0 or more seconds")
        if self.slots and self.max_running_requests > self.slots:
            raise ConfigError(
                f"max_running_requests: {self.max_running_requests} is more than slots ({self.slots}); "
                "every running request may need a slot of its own"
            )
        if not self.address.startswith("unix:"):
            host, _, port = self.address.rpartition(":")
            if host not in ("127.0.0.1", "localhost", "[::1]") or not port.isdigit():
                raise ConfigError(
                    f"address: {self.address!r} cannot be served; use unix:/PATH or 127.0.0.1:PORT "
                    "(the engine has no keys, so it stays on loopback)"
                )

    def to_json(self) -> str:
        """All fields, as `from_json` reads them."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> EngineConfig:
        """Raises ConfigError for text that is no JSON object of these fields."""
        try:
            values: Any = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"config: this is not JSON ({error}); pass one JSON object") from None
        if not isinstance(values, dict):
            raise ConfigError(f"config: {type(values).__name__} given; pass one JSON object")
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigError(f"config: unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}")
        missing = [name for name in ("model_path", "model_name", "address") if name not in values]
        if missing:
            raise ConfigError(f"config: {missing[0]} is missing; it has no default")
        return cls(**values)
