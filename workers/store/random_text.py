"""Random text for ids. Its bytes are drawn from the system many at a time, because each call of the system takes microseconds."""

from __future__ import annotations

import os
from threading import Lock

DRAWN_BYTES = 8192


class _Drawn:
    """Bytes that are not used yet; each is used once."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin again: a process that is forked would otherwise use the bytes that its parent uses."""
        self._drawn, self._at = b"", 0
        self._lock = Lock()

    def take(self, n_bytes: int) -> bytes:
        with self._lock:
            if len(self._drawn) - self._at < n_bytes:
                self._drawn, self._at = os.urandom(DRAWN_BYTES), 0
            start, self._at = self._at, self._at + n_bytes
            return self._drawn[start : self._at]


_drawn = _Drawn()
os.register_at_fork(after_in_child=_drawn.forget)


def random_hex(n_bytes: int) -> str:
    """Return so many random bytes as hexadecimal digits; not for secrets, because they wait in memory.

    >>> len(random_hex(16))
    32
    """
    return (_drawn.take(n_bytes) if n_bytes <= DRAWN_BYTES else os.urandom(n_bytes)).hex()
