"""Clients as users have them: the newest releases, in an environment of their own (`.venv.clients`).

`environment` makes it, `programs/` runs in it, and the tests read the facts that the programs print.
"""
