"""Options about the cells of files, which several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli.input_files.text_format import TextFormat, na_texts
from calibrant.cli.terminal import fail
from calibrant.client import Pseudonyms

Na = Annotated[
    str | None,
    typer.Option(
        "--na",
        metavar="TEXTS",
        help="texts that also mean no value, separated by commas: NA,nan. Default: blank cells, and null in text files",
    ),
]

Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="CHARACTER",
        help="between the cells of text files, or tab. Default: comma, in .tsv tab",
    ),
]
Decimal = Annotated[
    str,
    typer.Option("--decimal", metavar="CHARACTER", help="of numbers in text files: . or ,"),
]
IgnoreLabel = Annotated[
    str | None,
    typer.Option(
        "--ignore-label",
        metavar="NUMBERS",
        help="labels, or values of masks, that mean no label, separated by commas: 255 or -100",
    ),
]


def ignored_labels(option: str | None) -> tuple[int, ...]:
    """Return the numbers of `--ignore-label`; end the command if one is no whole number.

    >>> ignored_labels("255,-100")
    (255, -100)
    """
    try:
        return tuple(int(each) for each in option.split(",")) if option is not None else ()
    except ValueError:
        fail(f"Received --ignore-label {option!r}; expected whole numbers separated by commas.", 2)


def text_format(na: str | None, delimiter: str | None, decimal: str) -> TextFormat:
    """Return the form of cells; end the command if an option is not allowed."""
    if delimiter in ("tab", r"\t"):
        delimiter = "\t"
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '\r\n"'):
        fail(f"Received --delimiter {delimiter!r}; expected one character, or tab.", 2)
    if decimal not in (".", ","):
        fail(f"Received --decimal {decimal!r}; expected . or ,", 2)
    if decimal == "," and delimiter in (None, ","):
        fail(
            "Received --decimal , without --delimiter; expected another delimiter: --delimiter ';'",
            2,
        )
    return TextFormat(na_texts(na), delimiter, decimal == ",")


def _salt_file(given: Path | None) -> Path | None:
    """Reject an option that stands where the file is missing: `--pseudonyms -o p.html`."""
    if given is not None and str(given).startswith("-"):
        fail(
            f"Received {str(given)!r} after --pseudonyms; expected a file: --pseudonyms SALT_FILE. "
            f"If this is its name: --pseudonyms ./{given}",
            2,
        )
    return given


Salt = Annotated[
    Path | None,
    typer.Option(
        "--pseudonyms",
        envvar="CALIBRANT_PSEUDONYMS",
        metavar="SALT_FILE",
        callback=_salt_file,
        help="replace names of units, cases, ids and files by pseudonyms with the secret salt in this file",
    ),
]


def pseudonyms_of(salt: Path | None) -> Pseudonyms | None:
    """Return the pseudonyms of a salt file, None without; end the command if it cannot be used."""
    try:
        return None if salt is None else Pseudonyms.from_file(salt)
    except ValueError as error:
        fail(str(error))
