"""Episodes that are opened, keyed, closed and expired; choices of a completion; implicit conversations."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds the columns."""
    for column in (
        sa.Column("implicit", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("client", sa.LargeBinary(16)),
        sa.Column("key_hash", sa.LargeBinary(32)),
        sa.Column("metadata", sa.JSON),
        sa.Column("version", sa.BigInteger),
        sa.Column("expires_at", sa.Float),
        sa.Column("ended_at", sa.Float),
    ):
        op.add_column("episodes", column)
    op.create_index("ix_episodes_key_hash", "episodes", ["key_hash"], unique=True)
    op.create_index("ix_episodes_expires_at", "episodes", ["expires_at"])
    op.add_column("completions", sa.Column("choices", sa.Integer, nullable=False, server_default="1"))
    op.add_column("completions", sa.Column("conversation", sa.LargeBinary))
    op.create_index("ix_completions_finished_at", "completions", ["finished_at"])
    op.add_column("rewards", sa.Column("choice", sa.Integer))


def downgrade() -> None:
    """Removes them and what they hold."""
    op.drop_column("rewards", "choice")
    op.drop_index("ix_completions_finished_at", "completions")
    op.drop_column("completions", "conversation")
    op.drop_column("completions", "choices")
    op.drop_index("ix_episodes_expires_at", "episodes")
    op.drop_index("ix_episodes_key_hash", "episodes")
    for name in ("ended_at", "expires_at", "version", "metadata", "key_hash", "client", "implicit"):
        op.drop_column("episodes", name)
