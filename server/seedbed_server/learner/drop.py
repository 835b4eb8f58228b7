"""The guard of the control: has the live model become worse than its best version?

Controls are episodes that the unperturbed live model answered. Their rewards, in the order in which they
came, go through two things. Blocks of `block` controls each give a mean, of which the best is what the model
could do. And a sequential test watches whether the controls since then fall below that by more than the
bound.

The test is a one-sided CUSUM of bets (an e-detector: Shin, Ramdas and Rinaldo, "E-detectors: a nonparametric
framework for sequential change detection", 2023; the bets for bounded rewards after Waudby-Smith and Ramdas,
"Estimating means of bounded random variables by betting", 2024). With x the reward scaled to 0 .. 1 and
m = best - bound on that scale, for several fixed shares f:

    M_f <- max(M_f, 1) (1 + f (m - x) / (1 - m)),   alarm when mean over f of M_f reaches `run_length`

While no control has an expectation below m, given those before it, each factor has an expectation of at most
1. From that follows, for every distribution within the bounds, without independence and at every time at
which somebody looks:

    expected number of controls until a false alarm   >= run_length
    probability of a false alarm within h controls     <= h / run_length

The mean of a block is an estimate itself, so m is made of its lower bound (Hoeffding's, the k-th block with
an error of error 6 / (pi k)^2): the probability that any of them is ever above the truth is at most `error`,
which is added to the above. The price: a drop by less than about bound + (high - low) sqrt(log(1/error) /
(2 block)) is not seen; larger blocks see smaller ones. A test of fixed size, repeated at every update, would
have no such rate at all.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import Any

__all__ = [
    "Alarm",
    "Best",
    "Control",
    "DropRules",
    "evidence",
    "from_json",
    "observe_control",
    "restart",
    "to_json",
    "verdict",
]

_SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)


@dataclass(frozen=True, slots=True)
class DropRules:
    """What counts as a drop, and how sure the guard must be."""

    low: float = 0.0
    """Rewards below count as this; the rates hold for rewards held within the bounds."""
    high: float = 1.0
    bound: float = 0.05
    """A drop by this much, in the unit of rewards, is tolerated."""
    run_length: float = 10_000.0
    """Controls between two false alarms, on average, at least."""
    block: int = 100
    error: float = 0.05
    """Probability that the best version is over-rated, over all time."""

    def __post_init__(self) -> None:
        """Raises ValueError for rules under which the test means nothing."""
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(
                f"guard.low, guard.high: {self.low} and {self.high} bound no rewards; use two finite numbers"
            )
        if not (math.isfinite(self.bound) and 0 <= self.bound < self.high - self.low):
            raise ValueError(
                f"guard.bound: {self.bound} is not a drop that can happen; use 0 up to high - low, exclusive"
            )
        if not (math.isfinite(self.run_length) and self.run_length > 1):
            raise ValueError(f"guard.run_length: {self.run_length} alarms at once; use 1000 or more")
        if self.block < 2:
            raise ValueError(f"guard.block: {self.block} controls have no mean to trust; use 50 or more")
        if not 0 < self.error < 1:
            raise ValueError(f"guard.error: {self.error} is no probability; use one between 0 and 1")


@dataclass(frozen=True, slots=True)
class Best:
    """The best block of controls so far."""

    first_version: int
    last_version: int
    """Its controls were answered by these versions; the last is the one to go back to."""
    mean: float
    lower: float
    """What its expectation is at least."""


@dataclass(frozen=True, slots=True)
class Control:
    """What the guard knows. A value: `observe_control` returns the next one."""

    seen: int = 0
    blocks: int = 0
    best: Best | None = None
    evidence: tuple[float, ...] = (0.0,) * len(_SHARES)
    """log M for each share."""
    open_count: int = 0
    """Controls in the block that is not full yet."""
    open_total: float = 0.0
    """The sum of their rewards."""
    open_since: int = 0
    """The version of the first of them."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """The control has dropped."""

    best: Best
    evidence: float
    """At least the run length; how many times over the bets have paid."""
    seen: int

    @property
    def message(self) -> str:
        """One sentence for people."""
        return (
            f"the unperturbed model earns less than {self.best.lower:.4g}, what versions "
            f"{self.best.first_version} to {self.best.last_version} earned at least, by more than the bound"
        )


def observe_control(control: Control, rules: DropRules, reward: float, version: int) -> Control:
    """The guard after one control reward more, answered by a version.

    Rewards must come in one fixed order (that of their commits). Raises ValueError for one that is not
    finite.
    """
    if not math.isfinite(reward):
        raise ValueError(f"reward: {reward} is not finite; leave it out")
    held = min(max(reward, rules.low), rules.high)
    evidence = control.evidence
    if control.best is not None:
        width = rules.high - rules.low
        least = (control.best.lower - rules.bound - rules.low) / width
        # Nothing can be below the lowest reward.
        if 0 < least < 1:
            x = (held - rules.low) / width
            evidence = tuple(
                max(log, 0.0) + math.log1p(share * (least - x) / (1 - least))
                for log, share in zip(evidence, _SHARES, strict=True)
            )
    since = control.open_since if control.open_count else version
    after = replace(
        control,
        seen=control.seen + 1,
        evidence=evidence,
        open_count=control.open_count + 1,
        open_total=control.open_total + held,
        open_since=since,
    )
    return _with_block(after, rules, version) if after.open_count >= rules.block else after


def verdict(control: Control, rules: DropRules) -> Alarm | None:
    """The alarm, or None. It stays until the guard is started again (`restart`)."""
    found = evidence(control)
    if control.best is None or found < rules.run_length:
        return None
    return Alarm(control.best, found, control.seen)


def evidence(control: Control) -> float:
    """How many times over the bets have paid, 1 being nothing: what is compared with the run length."""
    largest = max(control.evidence)
    # The mean over the shares, with the largest taken out so that nothing overflows.
    log = largest + math.log(math.fsum(math.exp(item - largest) for item in control.evidence) / len(_SHARES))
    return math.exp(min(log, 700.0))


def restart(control: Control) -> Control:
    """The guard after a rollback, or after somebody has looked: the same best, without evidence, and with an
    empty block.
    """
    return replace(control, evidence=(0.0,) * len(_SHARES), open_count=0, open_total=0.0)


def to_json(control: Control) -> str:
    """The guard as JSON; `from_json` gives back the same to the last bit."""
    return json.dumps(asdict(control), allow_nan=False, separators=(",", ":"))


def from_json(text: str) -> Control:
    """The guard that `to_json` wrote. Raises ValueError for any other text."""
    try:
        data: Any = json.loads(text)
        best = None if data["best"] is None else Best(**data["best"])
        control = Control(**{**data, "best": best, "evidence": tuple(data["evidence"])})
        if len(control.evidence) != len(_SHARES) or not all(map(math.isfinite, control.evidence)):
            raise ValueError("evidence")
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"control: not what the guard knew ({error}); use a text that to_json wrote, or start without one"
        ) from None
    return control


def _with_block(control: Control, rules: DropRules, version: int) -> Control:
    number = control.blocks + 1
    middle = control.open_total / control.open_count
    allowed = rules.error * 6 / (math.pi * number) ** 2
    width = rules.high - rules.low
    lower = middle - width * math.sqrt(math.log(1 / allowed) / (2 * control.open_count))
    best = control.best
    if best is None or lower > best.lower:
        best = Best(control.open_since, version, middle, lower)
    return replace(control, blocks=number, best=best, open_count=0, open_total=0.0)
