"""The tables. Times are seconds since 1970 (UTC); seeds are decimal texts, because SQLite has no uint64."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator

__all__ = [
    "Seed",
    "commits",
    "completions",
    "episodes",
    "journal",
    "learning",
    "members",
    "metadata",
    "populations",
    "rewards",
    "runs",
    "snapshots",
]


class Seed(TypeDecorator[int]):
    """An unsigned 64-bit number as its decimal text."""

    impl = sa.String(20)
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Any) -> str | None:  # noqa: ARG002
        """To the database."""
        return None if value is None else str(value)

    def process_result_value(self, value: Any, dialect: Any) -> int | None:  # noqa: ARG002
        """From the database."""
        return None if value is None else int(value)


metadata = sa.MetaData()

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("model", sa.String, nullable=False),
    sa.Column("base_digest", sa.LargeBinary(32), nullable=False),
    # Of the live weights at version 0: base, scope, dtype and noise version are in it.
    sa.Column("start_digest", sa.LargeBinary(32), nullable=False),
    sa.Column("dtype", sa.String, nullable=False),
    sa.Column("scope", sa.String, nullable=False),
    sa.Column("noise_version", sa.Integer, nullable=False),
    sa.Column("rank", sa.Integer, nullable=False),
    sa.Column("settings", sa.JSON, nullable=False),
    # Rises with every gateway that takes the run over.
    sa.Column("term", sa.BigInteger, nullable=False),
)

populations = sa.Table(
    "populations",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("sigma", sa.Float, nullable=False),
    sa.Column("episodes_per_member", sa.Integer, nullable=False),
    sa.Column("opened_at", sa.Float, nullable=False),
    # Null while it is open.
    sa.Column("closed_at", sa.Float),
    # step, or the reason code for none.
    sa.Column("outcome", sa.String),
    sa.Column("reward_mean", sa.Float),
    sa.Column("reward_spread", sa.Float),
    # complete, deadline, given_up or forced.
    sa.Column("closing", sa.String),
    # What an operator may want to know of it.
    sa.Column("report", sa.JSON),
)

members = sa.Table(
    "members",
    metadata,
    sa.Column("population", sa.BigInteger, sa.ForeignKey("populations.number"), primary_key=True),
    sa.Column("index", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("seed", Seed, nullable=False),
    sa.Column("sign", sa.Integer, nullable=False),
)

episodes = sa.Table(
    "episodes",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    # Null: answered by the unperturbed live model.
    sa.Column("population", sa.BigInteger, sa.ForeignKey("populations.number"), index=True),
    sa.Column("member", sa.Integer),
    sa.Column("seed", Seed),
    # With the member's sign.
    sa.Column("sigma", sa.Float),
    sa.Column("group", sa.String),
    # open; closed or expired: it takes no more completions; dropped: it never got an answer and does not
    # count for its member.
    sa.Column("status", sa.String, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    # Opened by a request that named none.
    sa.Column("implicit", sa.Boolean, nullable=False, server_default=sa.false()),
    # Digest of the API key under which an implicit episode goes on.
    sa.Column("client", sa.LargeBinary(16)),
    # SHA-256 of the session key.
    sa.Column("key_hash", sa.LargeBinary(32), unique=True, index=True),
    sa.Column("metadata", sa.JSON),
    # The model's version when it was opened.
    sa.Column("version", sa.BigInteger),
    sa.Column("expires_at", sa.Float, index=True),
    sa.Column("ended_at", sa.Float),
    sa.Index(
        "ix_episodes_open",
        "created_at",
        sqlite_where=sa.text("status = 'open'"),
        postgresql_where=sa.text("status = 'open'"),
    ),
)

completions = sa.Table(
    "completions",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("episode_id", sa.String, sa.ForeignKey("episodes.id"), nullable=False, index=True),
    sa.Column("route", sa.String, nullable=False),
    sa.Column("member", sa.Integer),
    # running, finished, failed, cancelled (the client went away) or lost (the gateway did).
    sa.Column("status", sa.String, nullable=False, index=True),
    # At admission, and at the last token.
    sa.Column("version", sa.BigInteger),
    sa.Column("last_version", sa.BigInteger),
    sa.Column("prompt_tokens", sa.Integer),
    sa.Column("completion_tokens", sa.Integer),
    sa.Column("cached_tokens", sa.Integer),
    # One for each choice, with commas.
    sa.Column("finish_reasons", sa.String),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("finished_at", sa.Float, index=True),
    # How many choices were asked for.
    sa.Column("choices", sa.Integer, nullable=False, server_default="1"),
    # Digests of the conversation up to here, 16 bytes each, by which an implicit episode is found again.
    sa.Column("conversation", sa.LargeBinary),
)

rewards = sa.Table(
    "rewards",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("reward_id", sa.String, unique=True),
    sa.Column("episode_id", sa.String, sa.ForeignKey("episodes.id"), nullable=False, index=True),
    # Null: for the episode as a whole.
    sa.Column("completion_id", sa.String, sa.ForeignKey("completions.id")),
    # Null: for the completion as a whole.
    sa.Column("choice", sa.Integer),
    sa.Column("reward", sa.Float, nullable=False),
    sa.Column("feedback_text", sa.String),
    # accepted, replaced or late: what the agent was told.
    sa.Column("result", sa.String, nullable=False),
    # Whether it is the reward of its target: the newest, and not late.
    sa.Column("counts", sa.Boolean, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    # The population in which it counts, or beside which it was a control; null while its episode waits for a
    # final reward, and for what is late.
    sa.Column("population", sa.BigInteger, index=True),
    # How much it counts there; null: whole.
    sa.Column("weight", sa.Float),
    # False: more will follow for its episode; true: none will, and the episode ended with it.
    sa.Column("final", sa.Boolean),
)

journal = sa.Table(
    "journal",
    metadata,
    # The version that the record makes.
    sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
    # Null for a rollback, as are the figures of rewards and step.
    sa.Column("population", sa.BigInteger, sa.ForeignKey("populations.number")),
    # A serialised seedbed.v1.UpdateRecord or RollbackRecord, as `kind` says.
    sa.Column("record", sa.LargeBinary, nullable=False),
    # SHA-256 over the chain value before it and the record.
    sa.Column("chain", sa.LargeBinary(32), nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("reward_mean", sa.Float),
    sa.Column("reward_spread", sa.Float),
    sa.Column("reward_min", sa.Float),
    sa.Column("reward_max", sa.Float),
    sa.Column("best_member", sa.Integer),
    sa.Column("members", sa.Integer),
    sa.Column("episodes", sa.Integer),
    sa.Column("sigma", sa.Float),
    sa.Column("alpha", sa.Float),
    sa.Column("scale", sa.Float),
    # Null until an engine has applied it.
    sa.Column("applied_at", sa.Float),
    sa.Column("digest", sa.LargeBinary(32)),
    sa.Column("seconds", sa.Float),
    sa.Column("update_seconds", sa.Float),
    sa.Column("digest_seconds", sa.Float),
    sa.Column("cosine", sa.Float),
    sa.Column("retracted", sa.Integer),
    # update or rollback.
    sa.Column("kind", sa.String, nullable=False, server_default="update"),
)

snapshots = sa.Table(
    "snapshots",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False, index=True),
    # Name within the store's folder of snapshots.
    sa.Column("folder", sa.String, nullable=False),
    # Of the weights in it, as it was read back from the disk.
    sa.Column("digest", sa.LargeBinary(32), nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    # good, pruned or aside.
    sa.Column("state", sa.String, nullable=False),
    sa.Column("reason", sa.String),
)

# One row: what the newest transaction left, to know it by when the answer to its commit was lost.
commits = sa.Table(
    "commits",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("token", sa.LargeBinary(16), nullable=False),
)

# What learning remembers from one population to the next, by name: see `store.learning`.
learning = sa.Table(
    "learning",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("value", sa.JSON, nullable=False),
)
