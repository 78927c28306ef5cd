"""The option `--pseudonyms`: a file with the salt by which names are replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli.terminal import fail
from calibrant.client import Pseudonyms


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
