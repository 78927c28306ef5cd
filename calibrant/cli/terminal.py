"""Output of the command line: results to standard output, errors to standard error; log and end of a command that runs until it is stopped."""

from __future__ import annotations

import logging
import signal
import sys
import threading
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
