"""The live model of one scheduler process: weights, slots, and where they stand."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from seedbed_server.engine.address import Namespace
from seedbed_server.engine.anchor import Anchor
from seedbed_server.engine.config import EngineConfig
from seedbed_server.engine.digest import element_sum, weights_digest
from seedbed_server.engine.layout import Coverage, Kind, Layout, LayoutError, lay_out
from seedbed_server.engine.perturb import Rows, rows_of
from seedbed_server.engine.saving import Saving
from seedbed_server.engine.slots import Factors, SlotTable
from seedbed_server.engine.weights import WeightsError

__all__ = ["CONFIG_VARIABLE", "Live", "configured", "live_of"]

CONFIG_VARIABLE = "SEEDBED_ENGINE"
"""Environment variable that carries the settings to SGLang's processes; without it the plugin sleeps."""


def configured() -> EngineConfig | None:
    """The settings of the engine that this process belongs to, if it belongs to one."""
    text = os.environ.get(CONFIG_VARIABLE)
    return EngineConfig.from_json(text) if text else None


def live_of(scheduler: Any) -> Live:
    """The live model of a scheduler. Raises LayoutError where its model could not be covered."""
    live = scheduler.tp_worker.model_runner.seedbed
    if isinstance(live, LayoutError):
        raise live
    assert isinstance(live, Live)
    return live


@dataclass
class Live:
    """State of the live weights. Only the scheduler's own thread touches it, between batches.

    Attributes:
        base_digest: digest of the base weights by themselves, part of every later digest.
        start_digest: digest of version 0.
        version: updates since the base.
        epoch: rises with every change of the weights and is never used again.
        broken: why these weights cannot be accounted for; nothing is generated from then on.
        requests, rows, head: coefficients of the batch that is being computed: a row for each request, for
            each token, and for each row that the head sees.
        reached, head_reached: modules that perturbed some row so far, and whether the head did. (A tied
            head is the embedding's module, which says nothing of the head.)
        batch: the namespaces of the last batch, how often slots had been filled, and its rows.
        base: the base weights on disk, once an update needed them.
        saving: the snapshot that is being written, during which the weights stand still.
        last: the record that made this version, and the answer that it got, so that repeating it is safe.
    """

    layout: Layout
    slots: SlotTable
    config: EngineConfig
    architecture: str
    base_digest: bytes = b""
    start_digest: bytes = b""
    digest: bytes = b""
    version: int = 0
    epoch: int = 1
    broken: str = ""
    saving: Saving | None = field(default=None, repr=False)
    last: tuple[bytes, dict[str, Any]] | None = None
    requests: Rows | None = field(default=None, repr=False)
    rows: Rows | None = field(default=None, repr=False)
    head: Rows | None = field(default=None, repr=False)
    head_taken: int = 0
    reached: set[int] = field(default_factory=set, repr=False)
    head_reached: bool = False
    batch: tuple[tuple[str | None, ...], int, Rows | None] | None = field(default=None, repr=False)
    base: Anchor | None = field(default=None, repr=False)

    @classmethod
    def attach(cls, model: nn.Module, config: EngineConfig) -> Live:
        """Lays out a loaded model, allocates its slots and takes the digest of its base weights."""
        layout = lay_out(model, config.scope, config.exclude)
        live = cls(layout, SlotTable(layout, config.slots), config, type(model).__name__)
        live.base_digest = live._digest(b"")
        live.digest = live.start_digest = live.measure()
        return live

    @property
    def dtype(self) -> str:
        """The live dtype, such as `float32`."""
        return str(self.layout.parameters[0].data.dtype).removeprefix("torch.")

    @property
    def scope(self) -> str:
        """Which parameters take part: the operator's scope, then what was excluded, each after a `!`."""
        return ",".join([self.config.scope, *(f"!{p}" for p in sorted(self.config.exclude))])

    @property
    def model_folder(self) -> Path:
        """Where the base was loaded from."""
        return Path(self.config.model_path)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(p.data.numel() * p.data.element_size() for p in self.layout)

    def measure(self) -> bytes:
        """The digest of the weights as they are now; reads all of them."""
        return self._digest(self.base_digest)

    def anchor(self) -> Anchor:
        """The base weights on disk, proved to be those of the start. Raises WeightsError."""
        if self.base is None or self.base.changed:
            self.base = None
            base = Anchor(self.layout, self.model_folder)
            found = weights_digest(base.sums(), base=b"", scope=self.scope, dtype=self.dtype)
            if found != self.base_digest:
                raise WeightsError(
                    f"decay: the weights in {self.model_folder} are not those that this engine started with "
                    f"({found.hex()[:12]} found, {self.base_digest.hex()[:12]} wanted); put the model back"
                )
            self.base = base
        return self.base

    def _digest(self, base: bytes) -> bytes:
        sums = ((p.name, p.shape, element_sum(p.data)) for p in self.layout)
        return weights_digest(sums, base=base, scope=self.scope, dtype=self.dtype)

    def changed(self, version: int, digest: bytes) -> None:
        """The weights are now these; what was cached under the last epoch is gone."""
        self.version, self.digest = version, digest
        self.epoch += 1

    def factors(self, module: nn.Module) -> Factors | None:
        """The factors of a module that is computing just now."""
        found = self.slots.factors.get(id(module))
        if found is not None:
            self.reached.add(id(module))
        return found

    def unreached(self) -> list[str]:
        """Covered parameters of modules that never perturbed a row; empty once a request was perturbed."""
        heads = [s for s in self.layout.sites if s.kind is Kind.VOCABULARY][-1:]
        missed = [s for s in self.layout.sites if id(s.module) not in self.reached]
        missed += [] if self.head_reached else heads
        return [w.name for s in missed for w in s.weights if w.coverage is not Coverage.EXCLUDED]

    def batch_rows(self, namespaces: list[str | None]) -> Rows | None:
        """Coefficients of the requests of a batch, from their cache namespaces.

        A batch that is the last one over again (the next token of the same requests) has its rows already.
        """
        key = tuple(namespaces)
        if self.batch is not None and self.batch[:2] == (key, self.slots.fills):
            rows = self.batch[2]
            rows = None if rows is None else rows.keeping()
        else:
            rows = rows_of([Namespace.parse(text).address for text in namespaces], self.slots)
        self.batch = (key, self.slots.fills, rows)
        return rows

    def state(self) -> dict[str, Any]:
        """Where the weights stand, for an answer."""
        return {
            "version": self.version,
            "digest": self.digest,
            "epoch": self.epoch,
            "broken": self.broken,
        }
