"""Log and end of a command that runs until it is stopped."""

from __future__ import annotations

import logging
import signal
import threading


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
