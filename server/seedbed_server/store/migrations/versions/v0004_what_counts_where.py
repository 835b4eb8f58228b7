"""In which population a reward counts and how much, how populations closed, and what learning remembers."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Adds them. Rewards so far count in the population of their episode."""
    for column in (
        sa.Column("population", sa.BigInteger),
        sa.Column("weight", sa.Float),
        sa.Column("final", sa.Boolean),
    ):
        op.add_column("rewards", column)
    op.execute(
        "UPDATE rewards SET population = "
        "(SELECT episodes.population FROM episodes WHERE episodes.id = rewards.episode_id) WHERE counts"
    )
    op.create_index("ix_rewards_population", "rewards", ["population"])
    op.add_column("populations", sa.Column("closing", sa.String))
    op.add_column("populations", sa.Column("report", sa.JSON))
    op.create_index(
        "ix_episodes_open",
        "episodes",
        ["created_at"],
        sqlite_where=sa.text("status = 'open'"),
        postgresql_where=sa.text("status = 'open'"),
    )
    op.create_table(
        "learning",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("value", sa.JSON, nullable=False),
    )


def downgrade() -> None:
    """Removes them and what they hold."""
    op.drop_table("learning")
    op.drop_index("ix_episodes_open", "episodes")
    op.drop_column("populations", "report")
    op.drop_column("populations", "closing")
    op.drop_index("ix_rewards_population", "rewards")
    for name in ("final", "weight", "population"):
        op.drop_column("rewards", name)
