"""What a site has sent to a centre: a SQLite file, which survives a kill at any moment.

A total is written as outstanding before it is sent, and as sent after the centre has accepted it. A process that is killed in between sends
the same bytes under the same number again, and the centre knows them.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TABLES = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS models (model TEXT PRIMARY KEY, next INTEGER NOT NULL, generation TEXT NOT NULL, terms TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS totals (
    model TEXT, slice TEXT, at INTEGER, days TEXT NOT NULL, versions TEXT NOT NULL, packed BLOB NOT NULL, is_due INTEGER NOT NULL,
    PRIMARY KEY (model, slice, at));
CREATE TABLE IF NOT EXISTS outstanding (
    model TEXT PRIMARY KEY, number INTEGER NOT NULL, slice TEXT NOT NULL, at INTEGER NOT NULL, days TEXT NOT NULL,
    versions TEXT NOT NULL, packed BLOB NOT NULL, profile BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS history (model TEXT, slice TEXT, at INTEGER, digest BLOB, profile BLOB NOT NULL,
    PRIMARY KEY (model, slice, at, digest));
"""
FORMAT = 1
LOCK_TIMEOUT_S = 1.0


class LedgerError(RuntimeError):
    """The ledger does not fit the centre, the site or the contract."""


@dataclass(frozen=True)
class Total:
    """The total of some days, which the centre has as one.

    Attributes
    ----------
    at : start of its last day when it was first sent, seconds since 1970: its time at the centre
    days : starts of its days
    versions : of the panes of the days, when the total was made
    packed : as it was sent
    is_due : whether it is to be sent again, although nothing has changed
    """

    slice: str
    at: int
    days: tuple[int, ...]
    versions: str
    packed: bytes
    is_due: bool = False


@dataclass(frozen=True)
class Outstanding:
    """A total that was sent, or is about to be; whether it arrived is not known."""

    number: int
    total: Total
    profile: bytes


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
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._database.execute("PRAGMA synchronous = FULL")
            with self._together():
                for statement in TABLES.split(";")[:-1]:
                    self._database.execute(statement)
                self._about("format", str(FORMAT).encode())
                self.secret = self._about("secret", secrets.token_bytes(32))
                owner = self._about("site", site.encode()).decode()
        except sqlite3.DatabaseError as error:
            self._database.close()
            raise LedgerError(f"{path}: {error}. Does another forwarder use it?") from error
        if self._about("format", b"") != str(FORMAT).encode():
            raise LedgerError(f"{path} was written by another version.")
        if owner != site:
            raise LedgerError(f"{path} is the ledger of site {owner!r}; expected {site!r}.")

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def next_number(self, model: str) -> int:
        """Return the number of the next total of a model."""
        found = self._database.execute(
            "SELECT next FROM models WHERE model = ?", (model,)
        ).fetchone()
        return int(found[0]) if found else 0

    def check_model(self, model: str, generation: str, terms: str) -> None:
        """Remember the generation of the site's model and what is shared of it, or compare them.

        Raises
        ------
        LedgerError
            The model was made again, or other things are shared: new totals would replace others, or count in addition to them.
        """
        with self._together():
            known = self._database.execute(
                "SELECT generation, terms FROM models WHERE model = ?", (model,)
            ).fetchone()
            if known is None:
                self._database.execute(
                    "INSERT INTO models VALUES (?, 0, ?, ?)", (model, generation, terms)
                )
        if known is None or known == (generation, terms):
            return
        what, action = (
            (
                "was deleted and made again",
                "Share only this model with another contract, name of the site and ledger: the centre adds the new totals to the old ones.",
            )
            if known[0] != generation
            else (
                f"was shared as {known[1]}, and now is as {terms}",
                "Share it to another model of the centre, with another contract and ledger: in the same model its rows would count twice.",
            )
        )
        raise LedgerError(
            f"The site's model {model!r} {what}. Its totals would not fit those that the centre has. {action}"
        )

    def totals(self, model: str, slice_: str) -> list[Total]:
        """Return the totals of a slice that the centre has, in order of time."""
        rows = self._database.execute(
            "SELECT slice, at, days, versions, packed, is_due FROM totals WHERE model = ? AND slice = ? ORDER BY at",
            (model, slice_),
        )
        return [
            Total(slice_, at, tuple(json.loads(days)), versions, packed, bool(is_due))
            for slice_, at, days, versions, packed, is_due in rows
        ]

    def profiles(self, model: str, total: Total) -> list[tuple[bytes, bytes]]:
        """Return digest and profile of each total that the centre had at a time."""
        rows = self._database.execute(
            "SELECT digest, profile FROM history WHERE model = ? AND slice = ? AND at = ?",
            (model, total.slice, total.at),
        )
        return [(digest, profile) for digest, profile in rows]

    def note_versions(self, model: str, total: Total, versions: str) -> None:
        """Note that a total is unchanged, although its panes have other versions."""
        self._database.execute(
            "UPDATE totals SET versions = ? WHERE model = ? AND slice = ? AND at = ?",
            (versions, model, total.slice, total.at),
        )

    def outstanding(self, model: str) -> Outstanding | None:
        """Return the total that may or may not have arrived."""
        row = self._database.execute(
            "SELECT number, slice, at, days, versions, packed, profile FROM outstanding WHERE model = ?",
            (model,),
        ).fetchone()
        if row is None:
            return None
        number, slice_, at, days, versions, packed, profile = row
        return Outstanding(
            number, Total(slice_, at, tuple(json.loads(days)), versions, packed), profile
        )

    def begin(self, model: str, total: Total, profile: bytes) -> Outstanding:
        """Write a total as outstanding, under the next number."""
        number = self.next_number(model)
        self._database.execute(
            "INSERT INTO outstanding VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (model, number, total.slice, total.at, json.dumps(total.days), total.versions, total.packed, profile),
        )  # fmt: skip
        return Outstanding(number, total, profile)

    def finish(self, model: str, sent: Outstanding, digest: bytes) -> None:
        """Write the outstanding total as sent."""
        total = sent.total
        with self._together():
            self._database.execute(
                "INSERT OR REPLACE INTO totals VALUES (?, ?, ?, ?, ?, ?, 0)",
                (
                    model,
                    total.slice,
                    total.at,
                    json.dumps(total.days),
                    total.versions,
                    total.packed,
                ),
            )
            self._database.execute(
                "INSERT OR IGNORE INTO history VALUES (?, ?, ?, ?, ?)",
                (model, total.slice, total.at, digest, sent.profile),
            )
            self._database.execute("DELETE FROM outstanding WHERE model = ?", (model,))
            self._database.execute(
                "UPDATE models SET next = ? WHERE model = ?", (sent.number + 1, model)
            )

    def abandon(self, model: str) -> None:
        """Forget the outstanding total, which the centre has rejected."""
        self._database.execute("DELETE FROM outstanding WHERE model = ?", (model,))

    def send_again(self, model: str, number: int) -> None:
        """Continue at a number of a centre that knows less than it was sent, and send every total again."""
        with self._together():
            self._database.execute("DELETE FROM outstanding WHERE model = ?", (model,))
            self._database.execute("UPDATE models SET next = ? WHERE model = ?", (number, model))
            self._database.execute("UPDATE totals SET is_due = 1 WHERE model = ?", (model,))

    def _about(self, name: str, default: bytes) -> bytes:
        """Return a value of the file, which is written at its first use."""
        if default:
            self._database.execute("INSERT OR IGNORE INTO about VALUES (?, ?)", (name, default))
        row = self._database.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        return bytes(row[0])

    @contextmanager
    def _together(self) -> Iterator[None]:
        # Commits, or rolls back after an error; the connection begins no transaction itself.
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            yield
