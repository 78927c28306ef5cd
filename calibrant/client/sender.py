"""Thread that sends what is in the outbox of one model.

A batch gets its id and its bytes once. Every repeat sends the same, so the service counts it once, whatever was lost on the
way. A batch is given up when the service rejects its content, or after `retry_for_s`, which must be shorter than the time for
which the service stores batch ids (24 h by default).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from calibrant.client import processes
from calibrant.client.errors import ClientError, ServiceError, ServiceUnreachable
from calibrant.client.extra import imported
from calibrant.client.operations import Operation, batch, new_batch_id
from calibrant.client.outbox import Outbox
from calibrant.client.results import Receipt
from calibrant.client.rows import RowPiece, body_of, halves

logger = logging.getLogger("calibrant.client")
REPORT_EVERY_S = 60.0
# For a thread to end that is not in the middle of a request.
CLOSE_S = 1.0
# A batch that makes the service fail every time must not block those behind it for hours.
MAX_SERVER_ERRORS = 10
REJECTS_CONTENT = frozenset({400, 413, 422})


@dataclass(frozen=True)
class Shipment:
    """A request and the number of its rows; no request for rows that are not sent, with the reason."""

    n: int
    operation: Operation[Receipt] | None
    error: str = ""


Fetch = Callable[[Operation[Any]], Any]


class Packer(Protocol):
    """Makes requests of pieces."""

    # Whether pieces that were rejected may be sent in smaller batches.
    splits: bool

    def shipments(self, pieces: Sequence[RowPiece], fetch: Fetch) -> Iterator[Shipment]:
        """Yield the requests; together they have every row once."""


class RowPacker:
    """Sends rows as they are. The service rejects single rows (`partial`)."""

    splits = True

    def __init__(self, model: str) -> None:
        self._model = model

    def shipments(self, pieces: Sequence[RowPiece], fetch: Fetch) -> Iterator[Shipment]:
        """Yield one batch."""
        body = body_of(pieces, new_batch_id())
        n = sum(each.n for each in pieces)
        yield Shipment(n, batch(self._model, "predictions", body, partial=True))


class Abandoned(Exception):
    """The client was closed, and the rows of this batch were counted as dropped."""


class Sender:
    """Sends the pieces of an outbox in a thread that starts with the first one.

    Parameters
    ----------
    name : of the model, for messages
    outbox : what to send
    packer : makes the requests
    connect : makes the transport, in the thread
    retry_for_s : time after which a batch is given up
    exit_timeout_s : time for what waits when the process ends
    """

    def __init__(
        self,
        name: str,
        outbox: Outbox,
        packer: Packer,
        connect: Callable[[], Any],
        *,
        retry_for_s: float,
        exit_timeout_s: float,
    ) -> None:
        self.name, self.outbox = name, outbox
        self._packer, self._connect = packer, connect
        self._retry_for_s, self.exit_timeout_s = retry_for_s, exit_timeout_s
        self._retried = imported("transport").retried
        self._reported_at, self._reported = -REPORT_EVERY_S, 0
        self._renew()
        processes.watch(self)

    def _renew(self) -> None:
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread unless it runs; again after an error of the client's own, whose traceback was printed."""
        if not self._is_running():
            with self._starting:
                if not self._is_running():
                    name = f"calibrant-log-{self.name}"
                    self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                    self._thread.start()

    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def after_fork(self) -> None:
        """Forget, in a child process, what the parent sends."""
        self.outbox.renew()
        self._renew()

    def close(self, timeout_s: float | None) -> bool:
        """Send what waits, for at most this time; count the rest as dropped."""
        done = self.outbox.close(timeout_s)
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        self._report(at_once=True)
        return done

    def at_exit(self) -> None:
        """Send what waits before the process ends."""
        self.close(self.exit_timeout_s)

    def _run(self) -> None:
        transport = self._connect()
        try:
            while pieces := self.outbox.take():
                self._deliver(transport, pieces)
                self._report()
        except Abandoned:
            pass
        finally:
            self.outbox.abandon()
            transport.close()

    def _deliver(self, transport: Any, pieces: Sequence[RowPiece]) -> None:
        """Send pieces; where the service rejects them together, send their halves: an invalid call costs no other its rows."""

        def fetch(operation: Operation[Any]) -> Any:
            return self._persist(transport, operation, Patience())

        n_left = sum(each.n for each in pieces)
        try:
            for shipment in self._packer.shipments(pieces, fetch):
                n_left -= shipment.n
                if shipment.operation is None:
                    self._record_outcome(shipment.n, rejected=shipment.n, error=shipment.error)
                elif self._ship(transport, shipment.operation, shipment.n, pieces):
                    for half in halves(pieces):
                        self._deliver(transport, half)
        except ClientError as error:
            # What the packer had to fetch could not be fetched; nothing of the rest was sent.
            if Patience().retries(error) is False:
                self._record_outcome(n_left, rejected=n_left, error=str(error))
            else:
                self._record_outcome(n_left, dropped="expired", error=str(error))

    def _ship(
        self, transport: Any, operation: Operation[Receipt], n: int, pieces: Sequence[RowPiece]
    ) -> bool:
        """Send a request and count the outcome. Return True, counting nothing, if its pieces should be split."""
        patience = Patience()
        try:
            receipt: Receipt = self._persist(transport, operation, patience)
        except ClientError as error:
            if patience.may_have_arrived:
                self._record_outcome(n, dropped="unconfirmed", error=str(error))
            elif patience.retries(error) is not False:
                self._record_outcome(n, dropped="expired", error=str(error))
            elif self._packer.splits and _is_divisible(error, pieces):
                return True
            else:
                self._record_outcome(n, rejected=n, error=str(error))
            return False
        values = receipt.to_dict()
        rejected = min(int(values["rejected"]), n)
        first = values["errors"][0] if values["errors"] else {}
        error_text = f"{first.get('pointer')}: {first.get('detail')}" if rejected else None
        self._record_outcome(n, acknowledged=n - rejected, rejected=rejected, error=error_text)
        return False

    def _persist(self, transport: Any, operation: Operation[Any], patience: Patience) -> Any:
        def once() -> Any:
            if self.outbox.is_given_up:
                raise Abandoned
            return transport.once(operation)

        return self._retried(once, patience, self._retry_for_s)

    def _record_outcome(self, n: int, error: str | None = None, **outcome: Any) -> None:
        if not self.outbox.record_outcome(n, error=error, **outcome):
            raise Abandoned

    def _report(self, at_once: bool = False) -> None:
        """Log rows that were not counted, at most once per minute."""
        found = self.outbox.statistics
        lost = found.n_dropped + found.rejected
        now = time.monotonic()
        if lost > self._reported and (at_once or now - self._reported_at >= REPORT_EVERY_S):
            self._reported_at, self._reported = now, lost
            logger.warning(
                "rows_not_counted model=%s rejected=%d dropped=%s last_error=%s",
                self.name, found.rejected, dict(found.dropped), found.last_error,
            )  # fmt: skip


class Patience:
    """Which errors of one request are worth a repeat; remembers whether an attempt may have arrived."""

    def __init__(self) -> None:
        self.may_have_arrived = False
        self._n_server_errors = 0

    def __call__(self, error: Exception) -> bool | float:
        """Return whether to send again, and after how many seconds if the service named them."""
        if isinstance(error, ServiceUnreachable):
            self.may_have_arrived |= error.may_have_arrived
        if isinstance(error, ServiceError) and error.status >= 500:
            self.may_have_arrived = True
            self._n_server_errors += error.status == 500
        return self.retries(error)

    def retries(self, error: Exception) -> bool | float:
        """Return the same, without remembering the error."""
        if isinstance(error, ServiceError) and error.status == 500:
            return self._n_server_errors < MAX_SERVER_ERRORS
        wait: bool | float = imported("transport").retry_wait(error)
        return wait


def _is_divisible(error: ClientError, pieces: Sequence[RowPiece]) -> bool:
    """Return whether parts of pieces that were rejected might be accepted: other calls, or fewer rows."""
    if not isinstance(error, ServiceError) or error.status not in REJECTS_CONTENT:
        return False
    too_large = error.status == 413 or any(
        each.rule == "too_many_panes" for each in error.violations
    )
    return len(pieces) > 1 or (too_large and pieces[0].n > 1)
