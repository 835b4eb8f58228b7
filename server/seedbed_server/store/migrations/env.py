"""Alembic's entry: runs the migrations on the connection that the store hands over."""

from alembic import context

from seedbed_server.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True
)
context.run_migrations()
