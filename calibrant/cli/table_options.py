"""Options about the cells of files, which several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

from calibrant.cli.terminal import fail

Na = Annotated[
    str | None,
    typer.Option(
        "--na",
        metavar="TEXTS",
        help="texts that also mean no value, separated by commas: NA,nan. Default: blank cells, and null in text files",
    ),
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
