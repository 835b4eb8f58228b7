"""PostgreSQL as a store: one server process writes, and knows of every commit whether it happened.

The writer's session holds an advisory lock from its first moment, so that whoever has no lock cannot write: a
gateway that was cut off and comes back finds that another one has taken over. A connection that is lost while
a transaction commits leaves its outcome open; the database is asked for it before anybody is told anything.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from seedbed_server.store import tables
from seedbed_server.store.errors import StoreLocked
from seedbed_server.store.place import Place

__all__ = ["Outcomes", "engine"]

LOCK = 0x5EEDBED
"""Key of the advisory lock: one store in a database."""
LOCK_SECONDS = 15.0
"""How long the session of a process that was killed, or of a machine that is gone, may take to go."""
SETTLE_SECONDS = 600.0
"""How long the database may be away until an open outcome is given up."""
CONNECT_SECONDS = 10
STATEMENT_SECONDS = 120
RETRY_SECONDS = 0.25


def engine(place: Place, *, writes: bool) -> sa.Engine:
    """An engine with one session that writes and holds the lock, or with sessions that only read.

    Its connections raise StoreLocked where another server holds the lock.
    """
    settings = {
        "synchronous_commit": "on",
        "statement_timeout": f"{STATEMENT_SECONDS}s",
        "lock_timeout": f"{STATEMENT_SECONDS}s",
        "idle_in_transaction_session_timeout": f"{STATEMENT_SECONDS}s",
        "timezone": "UTC",
        # What is read is new, and so in memory. With the price of a disk's arm, each batch of rewards would
        # read whole tables until they are large, or analysed.
        "random_page_cost": "1.1",
        # The other end as well: the session of a machine that is gone ends, and with it its lock, before a
        # start gives up. The database's own two hours would keep every other server out.
        "tcp_keepalives_idle": "5",
        "tcp_keepalives_interval": "2",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": "12s",
    }
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    arguments = {
        "connect_timeout": CONNECT_SECONDS,
        "application_name": f"seedbed {socket.gethostname()}:{os.getpid()}",
        # A peer that is gone without a word is noticed.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "options": options,
    }
    level = "READ COMMITTED" if writes else "REPEATABLE READ"
    made = sa.create_engine(
        place.url,
        connect_args=arguments,
        isolation_level=level,
        pool_size=1 if writes else 4,
        max_overflow=0,
        pool_timeout=STATEMENT_SECONDS,
        pool_pre_ping=not writes,
    )
    if writes:

        @sa.event.listens_for(made, "connect")
        def _lock(connection: Any, _record: Any) -> None:
            _hold_lock(connection, place)

        return made
    return made.execution_options(postgresql_readonly=True)


def _hold_lock(connection: Any, place: Place) -> None:
    """Takes the lock for the session. Raises StoreLocked."""
    deadline = time.monotonic() + LOCK_SECONDS
    with connection.cursor() as cursor:
        while True:
            cursor.execute("SELECT pg_try_advisory_lock(%s)", (LOCK,))
            if cursor.fetchone()[0]:
                connection.commit()
                return
            connection.commit()
            if time.monotonic() > deadline:
                break
            time.sleep(RETRY_SECONDS)
        cursor.execute(
            "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
            "WHERE l.locktype = 'advisory' AND l.granted AND l.objid::bigint = %s AND l.database = "
            "(SELECT oid FROM pg_database WHERE datname = current_database())",
            (LOCK,),
        )
        row = cursor.fetchone()
        connection.commit()
    holder = row[0] if row and row[0] else "another server"
    raise StoreLocked(
        f"store: {place.name} is in use by {holder}; stop that server, or choose another database"
    )


class Outcomes:
    """Tells whether transactions were committed whose commit was not answered.

    Each leaves a token in a row. (The number of a transaction would not do: after a crash it may be given to
    another one.) Whoever reads the row holds the lock, so that the session that wrote it has ended, and what
    it says will not change any more.
    """

    def __init__(self, writing: sa.Engine) -> None:
        self._engine = writing

    def mark(self, connection: sa.Connection) -> bytes:
        """Leaves a token in the transaction that is open."""
        token = os.urandom(16)
        changed = connection.execute(sa.update(tables.commits).values(token=token)).rowcount
        if not changed:
            connection.execute(sa.insert(tables.commits).values(id=1, token=token))
        return token

    def committed(self, mark: bytes) -> bool | None:
        """Whether the transaction that left this token was committed; None if nobody could be asked in time.

        Waits, bounded, for a database that is away.
        """
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            try:
                with self._engine.connect() as connection:
                    found = connection.execute(sa.select(tables.commits.c.token)).scalar()
            except StoreLocked:
                # Another server has taken over. What it found is what counts, and nothing is written here.
                return None
            except DBAPIError:
                time.sleep(RETRY_SECONDS)
            else:
                return bool(found == mark)
        return None
