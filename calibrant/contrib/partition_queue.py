"""Messages of one partition that wait, and the number at which its next request begins."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from calibrant.contrib.numbered_messages import (
    MAX_MESSAGES,
    Decode,
    Message,
    MessageRange,
    RejectedMessage,
    range_of,
)

MIN_WAIT_S, MAX_WAIT_S, JITTER = 0.2, 30.0, 0.25


@dataclass
class PartitionQueue:
    """Messages that wait for their request.

    A request begins at `first`, the watermark of the service, not at its first message: numbers without messages (compaction,
    transactions, rejected messages) belong to the request after them.

    Attributes
    ----------
    source : name of the partition for the service
    first : where the next request begins; None until the watermark is known
    next_offset : the smallest number that the next message may have
    retry_at : when a request may be sent again
    n_failures : requests without success in a row
    """

    source: str
    first: int | None = None
    next_offset: int = 0
    retry_at: float = 0.0
    n_failures: int = 0
    n_bytes: int = 0
    _messages: deque[tuple[float, Message]] = field(default_factory=deque)
    _prepared: MessageRange | None = None
    _limit: int = MAX_MESSAGES
    _reported: int = -1

    def __len__(self) -> int:
        return len(self._messages)

    def place(self, first: int, next_offset: int) -> None:
        """Begin at a watermark; messages are read from `next_offset`."""
        self.first, self.next_offset = first, next_offset
        self._drop(len(self._messages))

    def unplace(self) -> None:
        """Forget the place: the messages that wait are read again from the watermark of the service."""
        self.first = None
        self._drop(len(self._messages))

    def add(self, message: Message, now: float) -> None:
        """Add a message. One that was there before, or that belongs to another place, is left out."""
        if self.first is None or message.offset < self.next_offset:
            return
        self.next_offset = message.offset + 1
        self._messages.append((now, message))
        self.n_bytes += message.n_bytes

    def is_due(self, now: float, linger_s: float) -> bool:
        """Return whether a request is to be sent."""
        if not self._messages or now < self.retry_at:
            return False
        return now >= self._messages[0][0] + linger_s or len(self) >= MAX_MESSAGES

    def prepared(self, decode: Decode) -> MessageRange:
        """Return the rows of the next request, read once."""
        if self._prepared is None:
            some = [message for _, message in islice(self._messages, self._limit)]
            self._prepared = range_of(some, decode)
        return self._prepared

    def unreported(self, found: MessageRange) -> list[RejectedMessage]:
        """Return what was rejected and not returned here before."""
        new = [each for each in found.rejected if each.offset > self._reported]
        if new:
            self._reported = new[-1].offset
        return new

    def accept(self, end: int) -> None:
        """Continue after a request that was accepted."""
        self.first = end
        self.leave_out(end)

    def leave_out(self, end: int) -> None:
        """Drop messages without rows. Their numbers belong to the next request."""
        self._limit = min(2 * self._limit, MAX_MESSAGES)
        self._drop_before(end)

    def continue_at(self, watermark: int) -> bool:
        """Follow the watermark of the service; return whether the messages after it are here."""
        assert self.first is not None
        is_here = watermark >= self.first
        self.first = watermark
        self._drop_before(watermark)
        self.next_offset = max(self.next_offset, watermark)
        return is_here

    def split(self) -> bool:
        """Make the next request smaller; return whether that is possible."""
        n = self._prepared.n_messages if self._prepared is not None else self._limit
        self._prepared, self._limit = None, max(n // 2, 1)
        return n > 1

    def fail(self, retry_after_s: float | None, now: float) -> float:
        """Wait before the request is sent again: as long as the service asks, else longer each time; return how long."""
        growing = MIN_WAIT_S * 2.0 ** min(self.n_failures, 10)
        wait_s = (retry_after_s or min(MAX_WAIT_S, growing)) * (1.0 + JITTER * random.random())
        self.n_failures += 1
        self.retry_at = now + wait_s
        return wait_s

    def _drop_before(self, end: int) -> None:
        self._drop(sum(message.offset < end for _, message in self._messages))
        self.n_failures, self.retry_at = 0, 0.0

    def _drop(self, n: int) -> None:
        for _ in range(n):
            self.n_bytes -= self._messages.popleft()[1].n_bytes
        self._prepared = None
