"""Output of the command line: results to standard output, errors to standard error."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer
from rich.console import Console


def output() -> Console:
    """Return the console of results; its width does not depend on a terminal where there is none."""
    return Console(width=None if sys.stdout.isatty() else 120, soft_wrap=not sys.stdout.isatty())


def fail(sentence: str, code: int = 1) -> NoReturn:
    """Print an error and end the command."""
    Console(stderr=True, soft_wrap=True).print(
        f"calibrant: {sentence}", markup=False, highlight=False
    )
    raise typer.Exit(code)
