"""Rows as frozen dataclasses, one for each table, fields as in `tables`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = [
    "Applied",
    "CompletionEnd",
    "CompletionRow",
    "EpisodeRow",
    "JournalRow",
    "MemberRow",
    "PopulationRow",
    "RewardRow",
    "RunRow",
    "SnapshotRow",
    "columns",
    "to_row",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunRow:
    """The run that a store holds: one base model that learns."""

    created_at: float
    model: str
    base_digest: bytes
    start_digest: bytes
    """Of the live weights at version 0."""
    dtype: str
    scope: str
    noise_version: int
    rank: int
    settings: dict[str, Any]
    term: int


@dataclass(frozen=True, slots=True)
class PopulationRow:
    """A population; `closed_at` and what follows are None while it is open."""

    number: int
    version: int
    sigma: float
    episodes_per_member: int
    opened_at: float
    closed_at: float | None = None
    outcome: str | None = None
    reward_mean: float | None = None
    reward_spread: float | None = None
    closing: str | None = None
    report: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member of a population."""

    population: int
    index: int
    seed: int
    sign: int


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """An episode and the perturbation that it keeps to its end; None throughout for the live model."""

    id: str
    population: int | None
    member: int | None
    seed: int | None
    sigma: float | None
    group: str | None
    status: str
    created_at: float
    implicit: bool = False
    """Opened by a request that named none."""
    client: bytes | None = None
    """Digest of the API key under which an implicit episode goes on."""
    key_hash: bytes | None = None
    """Of the session key."""
    metadata: dict[str, str] | None = None
    version: int | None = None
    """The model's when it was opened."""
    expires_at: float | None = None
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class CompletionRow:
    """A completion as it starts."""

    id: str
    episode_id: str
    route: str
    member: int | None
    status: str
    created_at: float
    choices: int = 1


@dataclass(frozen=True, slots=True)
class CompletionEnd:
    """What is known of a completion when it has ended; None for what never came."""

    status: str
    finished_at: float
    version: int | None = None
    last_version: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reasons: str | None = None
    conversation: bytes | None = None
    """Digests of the conversation up to here, 16 bytes each."""


@dataclass(frozen=True, slots=True)
class RewardRow:
    """A reward on record."""

    reward_id: str | None
    episode_id: str
    completion_id: str | None
    reward: float
    feedback_text: str | None
    result: str
    counts: bool
    created_at: float
    choice: int | None = None
    population: int | None = None
    """In which it counts, or beside which it was a control; None while its episode waits for a final one."""
    weight: float | None = None
    """None: it counts whole."""
    final: bool | None = None
    """False: more will follow for its episode."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What an engine said about an update that it applied; None where it did not say."""

    applied_at: float
    digest: bytes
    seconds: float | None = None
    update_seconds: float | None = None
    digest_seconds: float | None = None
    cosine: float | None = None
    retracted: int | None = None


@dataclass(frozen=True, slots=True)
class JournalRow:
    """One record; `applied_at` and what follows are None until an engine has applied it.

    A rollback belongs to no population: everything from `reward_mean` to `scale` is None for it as well.
    """

    version: int
    population: int | None
    record: bytes
    chain: bytes
    created_at: float
    reward_mean: float | None = None
    reward_spread: float | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    best_member: int | None = None
    members: int | None = None
    episodes: int | None = None
    sigma: float | None = None
    alpha: float | None = None
    scale: float | None = None
    applied_at: float | None = None
    digest: bytes | None = None
    seconds: float | None = None
    update_seconds: float | None = None
    digest_seconds: float | None = None
    cosine: float | None = None
    retracted: int | None = None
    kind: str = "update"
    """`update` or `rollback`: which message the record is."""


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """Full weights in a folder beside the store."""

    version: int
    folder: str
    """Name within the store's folder of snapshots."""
    digest: bytes
    bytes: int
    created_at: float
    state: str = "good"
    """`good`, `pruned` or `aside`."""
    reason: str | None = None
    """Why it was set aside."""
    id: int | None = None


def columns(row: object) -> dict[str, Any]:
    """The columns of a row, to insert or update."""
    return {field.name: getattr(row, field.name) for field in fields(row)}  # type: ignore[arg-type]


def to_row(kind: type[T], row: sa.Row[Any]) -> T:
    """A selected row as its dataclass; columns that the dataclass does not have are left out."""
    mapping = row._mapping
    return kind(**{field.name: mapping[field.name] for field in fields(kind)})  # type: ignore[arg-type]
