"""Background log of predictions of one model: what `Model.log` and `AsyncModel.log` share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from calibrant.client.outbox import MAX_BATCH_BYTES, LogStatistics, Outbox
from calibrant.client.pseudonyms import PseudonymPacker, Pseudonyms
from calibrant.client.reduction import PanePacker
from calibrant.client.rows import MAX_ROWS, n_rows_of, pieces
from calibrant.client.sender import Packer, RowPacker, Sender
from calibrant.core.errors import CalibrationInputError

M = TypeVar("M", bound="Optioned")
# Panes cost more than rows, per request and for the service, and cost no more with more rows.
ROWS_OF_PANES = 100_000


@dataclass(frozen=True)
class LogOptions:
    """How a model's predictions are sent.

    Parameters
    ----------
    reduce : fill panes here and send these; no row leaves the process
    max_bytes : bound of the memory for rows that wait and the encoding of one batch. Beyond it rows are dropped and counted.
        The panes that `reduce` fills, one at a time, come on top.
    linger : seconds for which a row waits for others. Default: 1, with `reduce` 60.
    retry_for : seconds after which a batch that meets no success is dropped; shorter than the time for which the service
        stores batch ids (24 h by default)
    exit_timeout : seconds for what waits when the process ends
    """

    reduce: bool = False
    max_bytes: int = 64 << 20
    linger: float | None = None
    retry_for: float = 12 * 3600.0
    exit_timeout: float = 10.0

    @property
    def linger_s(self) -> float:
        """Seconds for which a row waits for others."""
        return (60.0 if self.reduce else 1.0) if self.linger is None else self.linger


class Optioned(Protocol):
    """A model of a client."""

    options: LogOptions


def model_of(
    models: dict[str, M], name: str, options: dict[str, Any], make: Callable[[LogOptions], M]
) -> M:
    """Return the model of a name, made with the first call; later ones may not change its options."""
    found = models.get(name)
    if found is None:
        return models.setdefault(name, make(LogOptions(**options)))
    if options and found.options != LogOptions(**options):
        raise ValueError(f"The model {name!r} is in use with other options: {found.options}.")
    return found


class RowLog:
    """Takes rows without waiting, and sends them in a thread.

    Parameters
    ----------
    model : name of the model
    options : how to send
    connect : makes the transport, in the thread
    pseudonyms : replaces names, in the thread; None to send them as they are
    """

    def __init__(
        self,
        model: str,
        options: LogOptions,
        connect: Callable[[], Any],
        pseudonyms: Pseudonyms | None = None,
    ) -> None:
        rows, n_bytes = (ROWS_OF_PANES, None) if options.reduce else (MAX_ROWS, MAX_BATCH_BYTES)
        self._outbox = Outbox(options.max_bytes, rows, options.linger_s, n_bytes)
        packer: Packer = PanePacker(model) if options.reduce else RowPacker(model)
        self._sender = Sender(
            model,
            self._outbox,
            packer if pseudonyms is None else PseudonymPacker(packer, pseudonyms),
            connect,
            retry_for_s=options.retry_for,
            exit_timeout_s=options.exit_timeout,
        )

    def log(self, columns: Mapping[str, Any]) -> int:
        """Copy rows into the outbox; return the number of rows that found room."""
        try:
            found = pieces(columns, MAX_ROWS, self._outbox.batch_bytes // 2, time.time())
        except (
            CalibrationInputError,
            AttributeError,
            OverflowError,
            TypeError,
            ValueError,
        ) as error:
            self._outbox.reject(n_rows_of(columns), str(error))
            return 0
        n = self._outbox.offer(found)
        self._sender.start()
        return n

    @property
    def statistics(self) -> LogStatistics:
        """Outcome of every row until now."""
        return self._outbox.statistics

    def flush(self, timeout: float | None) -> bool:
        """Wait until nothing is pending."""
        return self._outbox.flush(timeout)

    def close(self, timeout: float | None) -> bool:
        """Send what waits, and count the rest as dropped."""
        return self._sender.close(timeout)
