"""Options about the cells of files, which several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

Na = Annotated[
    str | None,
    typer.Option(
        "--na",
        metavar="TEXTS",
        help="texts that also mean no value, separated by commas: NA,nan. Default: blank cells, and null in text files",
    ),
]
