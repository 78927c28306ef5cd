"""Salted pseudonyms: names of patients, cases and files are replaced before they leave the process.

A pseudonym is the HMAC-SHA256 of the name with a secret salt, cut to 16 bytes. The same salt gives the same pseudonym, so labels find their
predictions by id, and a patient is one unit, wherever they are sent from. Without the salt no one can test a guessed name. The salt is never
sent. Two of a billion names share a pseudonym with a chance below 1e-20.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.client.rows import RowPiece

if TYPE_CHECKING:
    from calibrant.client.sender import Fetch, Packer, Shipment

MIN_SALT_BYTES = 16
N_BYTES = 16
# Begins with a letter, so that a spreadsheet does not read a number.
PREFIX = "p."
FIELDS = ("ids", "units", "cases")
ENDINGS = (".nii.gz", ".nii", ".dcm", ".npy", ".npz", ".csv", ".tsv", ".parquet", ".arrow", ".feather", ".json")  # fmt: skip


class Pseudonyms:
    """Replaces names by salted pseudonyms.

    Parameters
    ----------
    salt : secret of at least 16 bytes, the same wherever predictions and labels of a model are sent from
    fields : columns whose values are replaced; of `ids`, `units`, `cases` and `raters`

    Raises
    ------
    ValueError
        The salt is short.

    Examples
    --------
    >>> Pseudonyms(b"0123456789abcdef").of("patient-4")
    'p.1d0416cd14de7c342ccdf24d56e28c58'
    """

    def __init__(self, salt: bytes, fields: Sequence[str] = FIELDS) -> None:
        if len(salt) < MIN_SALT_BYTES:
            raise ValueError(
                f"Received a salt of {len(salt)} bytes; expected at least {MIN_SALT_BYTES}."
            )
        self._salt, self.fields = salt, tuple(fields)

    @classmethod
    def from_file(cls, path: str | Path, fields: Sequence[str] = FIELDS) -> Pseudonyms:
        """Read the salt from a file; white space at its ends is not part of it.

        Raises
        ------
        ValueError
            The file cannot be read, or the salt is short.
        """
        try:
            salt = Path(path).read_bytes().strip()
        except OSError as error:
            raise ValueError(f"The salt file {path} cannot be read: {error.strerror}.") from error
        if len(salt) < MIN_SALT_BYTES:
            detail = f"Received a salt of {len(salt)} bytes in {path}; expected at least {MIN_SALT_BYTES}."
            raise ValueError(f"{detail} Make one: openssl rand -hex 32 > {path}")
        return cls(salt, fields)

    def of(self, name: object) -> str:
        """Return the pseudonym of a name: the same for the same text, in every field."""
        coded = hmac.digest(self._salt, str(name).encode(), hashlib.sha256)
        return PREFIX + coded[:N_BYTES].hex()

    def file(self, path: Path) -> Path:
        """Return a pseudonym of a file's name, with its ending; other parts of the path are left out."""
        ending = next((each for each in ENDINGS if path.name.lower().endswith(each)), "")
        return Path(self.of(path.name[: len(path.name) - len(ending)]) + ending)

    def without_files(self, text: str, paths: Sequence[Path]) -> str:
        """Return a message with the pseudonyms of the files that it names."""
        for path in paths:
            for name in (str(path.absolute()), str(path), path.name):
                text = text.replace(name, str(self.file(path)))
        return text

    def columns(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return columns of predictions or labels with the fields replaced; None stays None."""
        return {
            name: _replaced(column, self.of)
            if name in self.fields and column is not None
            else column
            for name, column in columns.items()
        }

    def __repr__(self) -> str:
        return f"Pseudonyms(fields={self.fields})"


def coded_columns(pseudonyms: Pseudonyms | None, columns: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return columns with pseudonyms; unchanged without them."""
    return columns if pseudonyms is None else pseudonyms.columns(columns)


def _replaced(column: Any, of: Any) -> Any:
    """Return names, or lists of names, as pseudonyms."""
    if isinstance(column, str):
        return of(column)
    values = column.tolist() if hasattr(column, "tolist") else column
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        return of(values)
    return [None if each is None else _replaced(each, of) for each in values]


class PseudonymPacker:
    """Replaces the names of logged rows in the thread that sends them, before they are packed.

    Parameters
    ----------
    packer : makes the requests
    pseudonyms : replaces the names
    """

    def __init__(self, packer: Packer, pseudonyms: Pseudonyms) -> None:
        self._packer, self._pseudonyms = packer, pseudonyms
        self.splits = packer.splits

    def shipments(self, pieces: Sequence[RowPiece], fetch: Fetch) -> Iterator[Shipment]:
        """Yield the requests of the pieces with pseudonyms."""
        return self._packer.shipments([self._piece(each) for each in pieces], fetch)

    def _piece(self, piece: RowPiece) -> RowPiece:
        named = {
            name: content.tolist() if isinstance(content, np.ndarray) else json.loads(content)
            for name, content in piece.columns.items()
            if name in self._pseudonyms.fields
        }
        coded = self._pseudonyms.columns(named)
        texts = {name: json.dumps(column).encode() for name, column in coded.items()}
        return replace(piece, columns={**piece.columns, **texts})
