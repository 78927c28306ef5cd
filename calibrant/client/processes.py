"""Ends and forks of the process: what waits is sent before the end, and a forked child does not send it again."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol


class Watched(Protocol):
    """Something with a thread."""

    def at_exit(self) -> None:
        """Finish before the process ends."""

    def after_fork(self) -> None:
        """Start again in a child process."""


_watched: weakref.WeakSet[Watched] = weakref.WeakSet()


def watch(each: Watched) -> None:
    """Call an object at the end and after a fork of the process; a running thread keeps it alive until then."""
    _watched.add(each)


def _at_exit() -> None:
    for each in list(_watched):
        each.at_exit()


def _after_fork() -> None:
    for each in list(_watched):
        each.after_fork()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
