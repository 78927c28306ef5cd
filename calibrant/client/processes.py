"""Hooks for the end and forks of the process: waiting rows are sent before the end, and a forked child does not send them again."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol


class Watched(Protocol):
    """Object with threads or connections, which a forked child does not share."""

    def at_exit(self) -> None:
        """Finish before the process ends."""

    def after_fork(self) -> None:
        """Replace threads and connections in a child process."""


_watched: weakref.WeakSet[Watched] = weakref.WeakSet()


def watch(each: Watched) -> None:
    """Register an object for both hooks. The reference is weak; a running thread keeps its object alive."""
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
