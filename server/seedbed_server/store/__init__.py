"""The store: what has to survive a crash, in one SQLite file or one PostgreSQL database.

`place` says which; `sqlite` and `postgres` are what differs between them. `database.Store` opens it (one
process at a time, held by a lock), brings its tables up to date and owns the only `writer`: a thread that
takes jobs in order, puts as many as are waiting into one transaction and confirms each after the commit
that holds it. Everything else here is a function over a connection that inserts or selects rows (`rows`) of
one subject: `runs`, `populations`, `episodes`, `rewards`, `journal` (`lineage`: what it says). No function
here decides anything about learning; a job that must decide is handed in by the gateway and runs inside the
transaction, so that it sees everything that was confirmed before it.
"""

from seedbed_server.store.database import Store
from seedbed_server.store.errors import StoreBusy, StoreError, StoreLocked, StoreMismatch
from seedbed_server.store.place import Place, place_of

__all__ = ["Place", "Store", "StoreBusy", "StoreError", "StoreLocked", "StoreMismatch", "place_of"]
