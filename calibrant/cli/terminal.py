"""Output of the command line: results to standard output, errors to standard error; log and end of a command that runs until it is stopped."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Container, Iterable
from typing import NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text


def output() -> Console:
    """Return the console of results; its width does not depend on a terminal where there is none."""
    return Console(width=None if sys.stdout.isatty() else 120, soft_wrap=not sys.stdout.isatty())


def new_table(
    columns: Iterable[str | Text],
    numbers: Container[str | Text] = (),
    title: str | Text | None = None,
) -> Table:
    """Return an empty table without lines; columns of `numbers` are aligned to the right."""
    found = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for name in columns:
        found.add_column(name, justify="right" if name in numbers else "left")
    return found


def fail(sentence: str, code: int = 1) -> NoReturn:
    """Print an error and end the command."""
    Console(stderr=True, soft_wrap=True).print(
        f"calibrant: {sentence}", markup=False, highlight=False
    )
    raise typer.Exit(code)


def log_events() -> None:
    """Write the log to standard error, without the lines of single requests."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)


def stop_event() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stopped = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: stopped.set())
    return stopped
