"""A thread of a storm, whose error the main thread reports."""

from __future__ import annotations

import threading


class StormThread(threading.Thread):
    """Does its work until it is done or may end.

    Attributes
    ----------
    may_end : set once the storm is over
    error : what ended it, None if nothing did
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.may_end = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        """Do the work; keep the error that ends it."""
        try:
            self.work()
        except BaseException as error:
            self.error = error
            raise

    def work(self) -> None:
        """Do what the thread is for."""
        raise NotImplementedError
