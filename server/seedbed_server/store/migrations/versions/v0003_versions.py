"""Records that are no updates, and snapshots."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

UPDATES_ONLY = {
    "population": sa.BigInteger,
    "reward_mean": sa.Float,
    "reward_spread": sa.Float,
    "reward_min": sa.Float,
    "reward_max": sa.Float,
    "best_member": sa.Integer,
    "members": sa.Integer,
    "episodes": sa.Integer,
    "sigma": sa.Float,
    "alpha": sa.Float,
    "scale": sa.Float,
}


def upgrade() -> None:
    """Adds them. Every record so far is an update."""
    with op.batch_alter_table("journal") as journal:
        for name, kind in UPDATES_ONLY.items():
            journal.alter_column(name, existing_type=kind(), nullable=True)
        journal.add_column(sa.Column("kind", sa.String, nullable=False, server_default="update"))
    op.create_table(
        "snapshots",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("folder", sa.String, nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("reason", sa.String),
    )
    op.create_index("ix_snapshots_version", "snapshots", ["version"])


def downgrade() -> None:
    """Removes them; a journal with a rollback in it cannot go back."""
    op.drop_table("snapshots")
    with op.batch_alter_table("journal") as journal:
        journal.drop_column("kind")
        for name, kind in UPDATES_ONLY.items():
            journal.alter_column(name, existing_type=kind(), nullable=False)
