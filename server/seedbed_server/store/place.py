"""Where a store is, as an operator says it: the path of an SQLite file, or a PostgreSQL database's URL."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from seedbed_server.home import home
from seedbed_server.store.errors import StoreError

__all__ = ["Place", "is_url", "place_of"]

_SCHEMES = ("postgresql", "postgres")
_DRIVER = "postgresql+psycopg"


@dataclass(frozen=True)
class Place:
    """A database, and the folder of what belongs to it and is no row: snapshots, the engine's log.

    Attributes:
        url: for SQLAlchemy, with its driver.
        beside: an absolute path; files of the store have names that begin with its name. For SQLite: itself.
    """

    url: sa.URL
    beside: Path

    @property
    def is_file(self) -> bool:
        """Whether it is an SQLite file."""
        return self.url.drivername == "sqlite"

    @property
    def name(self) -> str:
        """For people: the path, or the URL without its password."""
        if self.is_file:
            return str(self.beside)
        return self.url.set(drivername="postgresql").render_as_string(hide_password=True)


def is_url(store: Path | str) -> bool:
    """Whether this is meant as the URL of a database and not as a path."""
    return "://" in str(store)


def place_of(store: Path | str, folder: Path | None = None) -> Place:
    """The place that an operator named. Raises StoreError for a URL that cannot be used.

    Args:
        store: `postgresql://USER@HOST:PORT/DATABASE` (libpq's form, parameters included), or a path.
        folder: for what lies beside a database; None: `<SEEDBED_HOME>/databases/<name made of the URL>`. For
            a file there is none to choose.
    """
    if isinstance(store, Path) or not is_url(store):
        file = Path(store).expanduser().resolve()
        if folder is not None:
            raise StoreError(
                f"store_folder: {folder} is for a store with a URL, and {file} is a file: what belongs to it "
                "lies beside it. Leave store_folder out"
            )
        return Place(sa.URL.create("sqlite", database=str(file)), file)
    scheme = store.partition("://")[0]
    if scheme not in _SCHEMES:
        raise StoreError(
            f"store: {scheme}:// is no store; use postgresql://USER@HOST/DATABASE, or the path of an SQLite "
            "file"
        )
    try:
        url = sa.make_url(store).set(drivername=_DRIVER)
    except (sa.exc.ArgumentError, ValueError) as error:
        raise StoreError(
            f"store: the URL cannot be read ({error}); use postgresql://USER@HOST:PORT/DATABASE"
        ) from None
    if not url.database:
        raise StoreError("store: the URL names no database; use postgresql://USER@HOST:PORT/DATABASE")
    if folder is None:
        # Without user and password: they may change, and a name shows.
        named = f"{url.host or url.query.get('host', 'local')}:{url.port or 5432}/{url.database}"
        folder = home() / "databases" / f"{url.database}-{hashlib.sha256(named.encode()).hexdigest()[:8]}"
    return Place(url, folder.expanduser().resolve() / "store")
