"""The manifest: one line per case with its patient and its files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import count
from pathlib import Path

from calibrant.cli.input_files.file_errors import InputFileError
from calibrant.cli.input_files.text_format import DEFAULT_FORMAT, TextFormat
from calibrant.cli.input_files.text_tables import TextTable
from calibrant.client import Pseudonyms

NAME = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
REQUIRED = ("case", "patient", "probability")
OPTIONAL = ("scanner", "roi")
READER = "reader"
LISTED = "case, patient, probability, reader_1, …; optional: scanner, roi"
# Least similarity of an unknown name and the known name that an error proposes.
SIMILAR = 0.6


@dataclass(frozen=True)
class ManifestCase:
    """One image.

    Attributes
    ----------
    line : of the manifest, from 1
    probability : file of the probabilities
    readers : column to file, without absent ones
    absent : columns of the readers that did not mark this case
    roi : file of the region of interest, None if the manifest names none
    """

    name: str
    patient: str
    line: int
    probability: Path
    readers: dict[str, Path]
    scanner: str | None = None
    roi: Path | None = None
    absent: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, Path]:
        """Every file of the case by its column."""
        roi = {} if self.roi is None else {"roi": self.roi}
        return {**self.rated, **roi}

    @property
    def rated(self) -> dict[str, Path]:
        """The files of probabilities and readers by their column."""
        return {"probability": self.probability, **self.readers}

    @property
    def files(self) -> list[Path]:
        """Every file of the case."""
        return list(self.columns.values())


def read_manifest(
    path: Path, pseudonyms: Pseudonyms | None = None, form: TextFormat = DEFAULT_FORMAT
) -> list[ManifestCase]:
    """Return the cases of a CSV file; paths in it are relative to its folder.

    Parameters
    ----------
    pseudonyms : replaces the names of cases and patients, which then may have any characters; None to keep them
    form : of the cells

    Raises
    ------
    InputFileError
        A column is missing or unknown, a name is missing, repeated or not allowed, or a file is in two cells.
    """
    if path.suffix.lower() not in (".csv", ".tsv"):
        raise InputFileError(path, "Expected a manifest that ends in .csv or .tsv.", "format")
    if not path.is_file():
        raise InputFileError(path, "The file does not exist. Check the path.", "missing")
    table = TextTable(path, form)
    names = {name.lower(): name for name in table.names}
    readers = [name for name in table.names if name.lower().startswith(READER)]
    for name in REQUIRED:
        if name not in names:
            detail = f"Received no column {name!r}; expected {LISTED}."
            raise InputFileError(path, detail, "missing_column", name)
    _reject_unknown(table, readers)
    if not readers:
        detail = "Received no column of a reader; expected reader_1, reader_2, …"
        raise InputFileError(path, detail, "missing_column")
    columns = {name: table.texts(names[name]) for name in (*REQUIRED, *OPTIONAL) if name in names}
    if pseudonyms is not None:
        for name in ("case", "patient"):
            columns[name] = [each and pseudonyms.of(each) for each in columns[name]]
    rated = {name: table.texts(name) for name in readers}
    _check_names(table, columns["case"], names["case"], is_unique=True)
    _check_names(table, columns["patient"], names["patient"], is_unique=False)
    cases = []
    for row in range(len(columns["case"])):
        value = {name: column[row] for name, column in columns.items()}
        line = table.line(row) or row + 1
        if value["probability"] is None:
            detail = "Received no file; expected one per case."
            raise InputFileError(path, detail, "missing", names["probability"], row, line)
        files = {name: path.parent / text for name in readers if (text := rated[name][row])}
        roi = value.get("roi")
        cases.append(
            ManifestCase(
                str(value["case"]),
                str(value["patient"]),
                line,
                path.parent / str(value["probability"]),
                files,
                value.get("scanner"),
                None if roi is None else path.parent / roi,
                tuple(name for name in readers if name not in files),
            )
        )
    if not cases:
        raise InputFileError(path, "Received no case; expected one per line.", "empty")
    _reject_repeated_files(path, cases)
    return cases


def _reject_repeated_files(path: Path, cases: Sequence[ManifestCase]) -> None:
    """Reject a file in two cells: a copied cell counts one reader, or one scan, twice.

    Several cases of one patient may share files if each has a region of its own, such as the lesions of one scan.
    """
    seen: dict[Path, tuple[ManifestCase, str]] = {}
    for row, case in enumerate(cases):
        for column, file in case.rated.items():
            other, first = seen.setdefault(file.resolve(), (case, column))
            if (other, first) == (case, column) or _is_another_region(other, first, case, column):
                continue
            detail = (
                f"Received the same file as in column {first!r} of case {other.name!r} (line {other.line}); expected another one. "
                f"Correct the cell of case {case.name!r}"
            )
            detail += (
                ", or leave it empty if the reader was absent." if column in case.readers else "."
            )
            raise InputFileError(path, detail, "repeated_file", column, row, case.line)


def _is_another_region(other: ManifestCase, first: str, case: ManifestCase, column: str) -> bool:
    is_same_scan = other.patient == case.patient and first == column and other is not case
    return is_same_scan and None not in (other.roi, case.roi) and other.roi != case.roi


def _reject_unknown(table: TextTable, readers: Sequence[str]) -> None:
    """Reject a column that has no role: a misspelled reader would be left out without notice."""
    known = {*REQUIRED, *OPTIONAL}
    for name in table.names:
        if name in readers or name.lower() in known:
            continue
        free = next(each for i in count(1) if (each := f"{READER}_{i}") not in readers)
        near = get_close_matches(name.lower(), [*REQUIRED, *OPTIONAL, free], 1, SIMILAR)
        advice = f"Is it {near[0]!r}? Rename it" if near else "Rename it"
        detail = f"Received the unknown column {name!r:.60}; expected {LISTED}. {advice}, or remove the column."
        raise InputFileError(table.path, detail, "unknown_column", name)


def _check_names(
    table: TextTable, column: Sequence[str | None], name: str, is_unique: bool
) -> None:
    seen: dict[str, int] = {}
    for row, text in enumerate(column):
        line = table.line(row)
        if text is None or not NAME.fullmatch(text):
            detail = f"Received {text!r:.60}; expected 1 to 128 characters of A-Za-z0-9._:@-. Replace spaces and accents."
            raise InputFileError(table.path, detail, "name", name, row, line)
        if is_unique and text in seen:
            detail = f"Received the case {text!r} a second time (first in row {seen[text]})."
            raise InputFileError(table.path, detail, "repeated_case", name, row, line)
        seen[text] = row
