"""The first tables: runs, populations, members, episodes, completions, rewards, journal."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Makes the tables."""
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("model", sa.String, nullable=False),
        sa.Column("base_digest", sa.LargeBinary(32), nullable=False),
        sa.Column("start_digest", sa.LargeBinary(32), nullable=False),
        sa.Column("dtype", sa.String, nullable=False),
        sa.Column("scope", sa.String, nullable=False),
        sa.Column("noise_version", sa.Integer, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("term", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "populations",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("sigma", sa.Float, nullable=False),
        sa.Column("episodes_per_member", sa.Integer, nullable=False),
        sa.Column("opened_at", sa.Float, nullable=False),
        sa.Column("closed_at", sa.Float),
        sa.Column("outcome", sa.String),
        sa.Column("reward_mean", sa.Float),
        sa.Column("reward_spread", sa.Float),
    )
    op.create_table(
        "members",
        sa.Column("population", sa.BigInteger, sa.ForeignKey("populations.number"), primary_key=True),
        sa.Column("index", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seed", sa.String(20), nullable=False),
        sa.Column("sign", sa.Integer, nullable=False),
    )
    op.create_table(
        "episodes",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("population", sa.BigInteger, sa.ForeignKey("populations.number"), index=True),
        sa.Column("member", sa.Integer),
        sa.Column("seed", sa.String(20)),
        sa.Column("sigma", sa.Float),
        sa.Column("group", sa.String),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    op.create_table(
        "completions",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("episode_id", sa.String, sa.ForeignKey("episodes.id"), nullable=False, index=True),
        sa.Column("route", sa.String, nullable=False),
        sa.Column("member", sa.Integer),
        sa.Column("status", sa.String, nullable=False, index=True),
        sa.Column("version", sa.BigInteger),
        sa.Column("last_version", sa.BigInteger),
        sa.Column("prompt_tokens", sa.Integer),
        sa.Column("completion_tokens", sa.Integer),
        sa.Column("cached_tokens", sa.Integer),
        sa.Column("finish_reasons", sa.String),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("finished_at", sa.Float),
    )
    op.create_table(
        "rewards",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("reward_id", sa.String, unique=True),
        sa.Column("episode_id", sa.String, sa.ForeignKey("episodes.id"), nullable=False, index=True),
        sa.Column("completion_id", sa.String, sa.ForeignKey("completions.id")),
        sa.Column("reward", sa.Float, nullable=False),
        sa.Column("feedback_text", sa.String),
        sa.Column("result", sa.String, nullable=False),
        sa.Column("counts", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    op.create_table(
        "journal",
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("population", sa.BigInteger, sa.ForeignKey("populations.number"), nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.Column("chain", sa.LargeBinary(32), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("reward_mean", sa.Float, nullable=False),
        sa.Column("reward_spread", sa.Float, nullable=False),
        sa.Column("reward_min", sa.Float, nullable=False),
        sa.Column("reward_max", sa.Float, nullable=False),
        sa.Column("best_member", sa.Integer, nullable=False),
        sa.Column("members", sa.Integer, nullable=False),
        sa.Column("episodes", sa.Integer, nullable=False),
        sa.Column("sigma", sa.Float, nullable=False),
        sa.Column("alpha", sa.Float, nullable=False),
        sa.Column("scale", sa.Float, nullable=False),
        sa.Column("applied_at", sa.Float),
        sa.Column("digest", sa.LargeBinary(32)),
        sa.Column("seconds", sa.Float),
        sa.Column("update_seconds", sa.Float),
        sa.Column("digest_seconds", sa.Float),
        sa.Column("cosine", sa.Float),
        sa.Column("retracted", sa.Integer),
    )


def downgrade() -> None:
    """Removes the tables and everything in them."""
    for name in ("journal", "rewards", "completions", "episodes", "members", "populations", "runs"):
        op.drop_table(name)
