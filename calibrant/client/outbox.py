"""Queue of rows that wait to be sent, bounded in bytes, with counts of the outcomes of all rows.

The lock is held to move references and to add numbers, never while something is encoded, written or sent.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from calibrant.client.rows import RowPiece

# What encoding a batch, or filling a pane with it, takes, as a multiple of the batch in memory, for the least favourable columns.
ENCODING = 16
MAX_BATCH_BYTES = 1 << 20
MIN_BYTES = 1 << 20


@dataclass(frozen=True)
class LogStatistics:
    """Outcome of every row that was given to `log`; `logged` is the sum of the others.

    Attributes
    ----------
    logged : rows given to `log`
    acknowledged : rows that the service has accepted
    rejected : rows that the service, or `log`, rejected for their content
    dropped : rows that were given up, by reason: `full` (no room in memory), `expired` (no success for `retry_for`),
        `closed` (not sent when the client was closed), `unconfirmed` (sent, but not acknowledged when the client was
        closed or gave up: the service may have counted them)
    pending : rows that wait, or are being sent
    pending_bytes : what they take in memory
    last_error : the last failure, as text
    """

    logged: int
    acknowledged: int
    rejected: int
    pending: int
    pending_bytes: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    last_error: str | None = None

    @property
    def n_dropped(self) -> int:
        """Number of dropped rows, whatever the reason."""
        return sum(self.dropped.values())


class Outbox:
    """Pieces in the order in which they came.

    Parameters
    ----------
    max_bytes : bound of the memory that pieces take, and of the encoding of one batch
    batch_rows : most rows of one batch
    linger_s : longest time that a piece waits for others
    batch_bytes : most bytes of one batch, if that is less than its share of `max_bytes`
    """

    def __init__(
        self,
        max_bytes: int,
        batch_rows: int,
        linger_s: float,
        batch_bytes: int | None = MAX_BATCH_BYTES,
    ) -> None:
        if max_bytes < MIN_BYTES:
            raise ValueError(f"Received max_bytes={max_bytes}; expected at least {MIN_BYTES}.")
        self.batch_rows, self.linger_s = batch_rows, linger_s
        share = max_bytes // (2 * ENCODING)
        self.batch_bytes = share if batch_bytes is None else min(share, batch_bytes)
        self._room = max_bytes - ENCODING * self.batch_bytes
        self.renew()

    def renew(self) -> None:
        """Forget everything, as a child process does with what its parent sends."""
        self._changed = threading.Condition(threading.Lock())
        self._waiting: deque[tuple[float, int, RowPiece]] = deque()
        self._rows = self._bytes = self._taken_rows = self._taken_bytes = 0
        self._logged = self._acknowledged = self._rejected = 0
        self._dropped: Counter[str] = Counter()
        self._last_error: str | None = None
        self._urgent = self.is_closed = False

    def offer(self, offered: Sequence[RowPiece]) -> int:
        """Queue the pieces for which there is room; drop and count the rest. Return the number of queued rows."""
        sizes = [each.n_bytes for each in offered]
        now, queued = time.monotonic(), 0
        with self._changed:
            for piece, size in zip(offered, sizes, strict=True):
                self._logged += piece.n
                if self.is_closed or self._bytes + self._taken_bytes + size > self._room:
                    self._dropped["closed" if self.is_closed else "full"] += piece.n
                    continue
                self._waiting.append((now, size, piece))
                self._rows += piece.n
                self._bytes += size
                queued += piece.n
            self._changed.notify_all()
        return queued

    def reject(self, n: int, error: str) -> None:
        """Count rows that are not queued because of their content."""
        with self._changed:
            self._logged += n
            self._rejected += n
            self._last_error = error

    def take(self) -> list[RowPiece]:
        """Wait for a batch: pieces of one form. An empty list means that the outbox is closed."""
        with self._changed:
            while not self._is_ready():
                if self.is_closed and not self._waiting:
                    return []
                self._changed.wait(self._wait_s())
            return self._next()

    def record_outcome(
        self,
        n: int,
        *,
        acknowledged: int = 0,
        rejected: int = 0,
        dropped: str = "",
        error: str | None = None,
    ) -> bool:
        """Count the outcome of rows that were taken; False if they were counted as dropped before."""
        with self._changed:
            if not self._taken_rows:
                return False
            self._last_error = error or self._last_error
            self._acknowledged += acknowledged
            self._rejected += rejected
            if dropped:
                self._dropped[dropped] += n
            self._taken_rows -= n
            if not self._taken_rows:
                self._taken_bytes = 0
            self._changed.notify_all()
            return True

    def abandon(self) -> None:
        """Count rows that were taken as dropped; the service may have counted them."""
        with self._changed:
            self._dropped["unconfirmed"] += self._taken_rows
            self._taken_rows = self._taken_bytes = 0
            self._changed.notify_all()

    def flush(self, timeout_s: float | None) -> bool:
        """Wait until nothing is pending; return whether that is so."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            done = self._changed.wait_for(self._is_idle, timeout_s)
            self._urgent = False
            return done

    def close(self, timeout_s: float | None) -> bool:
        """Take no more rows, wait until nothing is pending, then give up the rest. Return whether nothing was."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()
            done = self._changed.wait_for(self._is_idle, timeout_s)
            self._dropped["closed"] += self._rows
            self._dropped["unconfirmed"] += self._taken_rows
            self._waiting.clear()
            self._rows = self._bytes = self._taken_rows = self._taken_bytes = 0
            self._changed.notify_all()
            return done

    @property
    def is_given_up(self) -> bool:
        """Whether the outbox is closed and what was taken from it was counted as dropped."""
        with self._changed:
            return self.is_closed and not self._taken_rows

    @property
    def statistics(self) -> LogStatistics:
        """Outcome of every row until now."""
        with self._changed:
            return LogStatistics(
                self._logged,
                self._acknowledged,
                self._rejected,
                self._rows + self._taken_rows,
                self._bytes + self._taken_bytes,
                {reason: n for reason, n in self._dropped.items() if n},
                self._last_error,
            )

    def _is_idle(self) -> bool:
        return not self._rows and not self._taken_rows

    def _is_ready(self) -> bool:
        if not self._waiting:
            return False
        full = self._rows >= self.batch_rows or self._bytes >= self.batch_bytes
        return full or self._urgent or self.is_closed or self._wait_s() == 0.0

    def _wait_s(self) -> float | None:
        if not self._waiting:
            return None
        return max(0.0, self._waiting[0][0] + self.linger_s - time.monotonic())

    def _next(self) -> list[RowPiece]:
        taken: list[RowPiece] = []
        n_rows = n_bytes = 0
        form = self._waiting[0][2].form
        while self._waiting:
            _, size, piece = self._waiting[0]
            too_much = n_rows + piece.n > self.batch_rows or n_bytes + size > self.batch_bytes
            if taken and (too_much or piece.form != form):
                break
            self._waiting.popleft()
            taken.append(piece)
            n_rows += piece.n
            n_bytes += size
        self._rows -= n_rows
        self._bytes -= n_bytes
        self._taken_rows += n_rows
        self._taken_bytes += n_bytes
        return taken
