"""A token of the newest transaction, for databases whose answer to a commit may be lost."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the table."""
    op.create_table(
        "commits",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("token", sa.LargeBinary(16), nullable=False),
    )


def downgrade() -> None:
    """Drops it."""
    op.drop_table("commits")
