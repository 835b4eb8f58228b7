"""The history of the tables, applied by `seedbed_server.store.database` at start."""
