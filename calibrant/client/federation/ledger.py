"""What a site has sent to a centre: a SQLite file, which survives a kill at any moment.

A total is written with its bytes before it is sent, and as sent after the centre has accepted it. A process that is killed in between sends
the same bytes under the same number again, and the centre knows them.
"""

from __future__ import annotations

import secrets
import sqlite3
from pathlib import Path
from typing import Any

TABLES = (
    "CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS totals (model TEXT, number INTEGER, slice TEXT, until INTEGER, body BLOB, PRIMARY KEY (model, number))",
)
LOCK_TIMEOUT_S = 1.0


class LedgerError(Exception):
    """Ledger, site, centre and contract do not fit together; the message says what to do."""


class Ledger:
    """What was sent of each model.

    Parameters
    ----------
    path : of the file; made if it does not exist
    site : name of the site; a ledger belongs to one
    """

    def __init__(self, path: Path, site: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, timeout=LOCK_TIMEOUT_S)
        try:
            # One forwarder at a time: the lock lasts as long as the connection.
            self._run("PRAGMA locking_mode = EXCLUSIVE")
            self._run("PRAGMA synchronous = FULL")
            for statement in TABLES:
                self._run(statement)
            self.secret = self.agreed("secret", secrets.token_bytes(32))
            owner = self.agreed("site", site.encode()).decode()
        except sqlite3.DatabaseError as error:
            self.close()
            raise LedgerError(f"{path}: {error}. Does another forwarder use it?") from error
        if owner != site:
            raise LedgerError(f"{path} is the ledger of site {owner!r}; expected {site!r}.")

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def agreed(self, name: str, value: bytes) -> bytes:
        """Return the value that was given first for a name."""
        self._run("INSERT OR IGNORE INTO about VALUES (?, ?)", name, value)
        return bytes(self._run("SELECT value FROM about WHERE name = ?", name)[0][0])

    def n_sent(self, model: str) -> int:
        """Return how many totals of a model the centre has accepted."""
        found = self._run("SELECT COUNT(*) FROM totals WHERE model = ? AND body IS NULL", model)
        return int(found[0][0])

    def until(self, model: str, slice_: str) -> int:
        """Return the time until which days of a slice were sent, seconds since 1970."""
        found = self._run(
            "SELECT MAX(until) FROM totals WHERE model = ? AND slice = ?", model, slice_
        )
        return int(found[0][0] or 0)

    def outstanding(self, model: str) -> bytes | None:
        """Return the request of the total that may or may not have arrived."""
        found = self._run("SELECT body FROM totals WHERE model = ? AND body IS NOT NULL", model)
        return bytes(found[0][0]) if found else None

    def begin(self, model: str, slice_: str, until: int, body: bytes) -> None:
        """Write the request of the next total before it is sent."""
        number = self.n_sent(model)
        self._run("INSERT INTO totals VALUES (?, ?, ?, ?, ?)", model, number, slice_, until, body)

    def finish(self, model: str) -> None:
        """Write the outstanding total as sent."""
        self._run("UPDATE totals SET body = NULL WHERE model = ?", model)

    def forget(self, model: str, number: int) -> None:
        """Forget totals from a number on: the centre does not have them."""
        self._run("DELETE FROM totals WHERE model = ? AND number >= ?", model, number)

    def _run(self, statement: str, *values: Any) -> list[Any]:
        return self._database.execute(statement, values).fetchall()
