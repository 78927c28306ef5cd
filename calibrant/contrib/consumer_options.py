"""How a consumer of numbered messages sends them, and what it reports: counts, rejected messages, and why it stops."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields

from calibrant.client import ServiceError
from calibrant.contrib.numbered_messages import RejectedMessage

log = logging.getLogger("calibrant.kafka")
# Problems of 409 that pass without a change of the request.
PASSING = ("import-unfinished",)


class StreamError(RuntimeError):
    """The consumer stops, because to continue could lose messages."""


@dataclass(frozen=True)
class ConsumerOptions:
    """How messages are sent.

    Parameters
    ----------
    linger_s : seconds for which messages are collected into one request
    max_bytes : bound of the messages that wait, of all partitions together. Reading pauses beyond it.
    source : name instead of the topic's in the source, for a topic that was deleted and made again
    start : where a partition begins that neither the service nor the consumer group knows: `earliest` or `latest`
    max_rejected : messages rejected in a row, without one valid row, after which the consumer stops
    exit_timeout_s : seconds for what waits when the consumer stops, or when a partition goes to another consumer
    """

    linger_s: float = 10.0
    max_bytes: int = 32 << 20
    source: str | None = None
    start: str = "earliest"
    max_rejected: int = 100
    exit_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if self.start not in ("earliest", "latest"):
            raise ValueError(f"Received start={self.start!r}; expected earliest or latest.")


@dataclass
class ConsumerStatistics:
    """Outcome of the messages until now.

    Attributes
    ----------
    messages : read from the topic; those read again after a rebalance or an error count again
    rows : that the service has accepted
    requests, duplicates : accepted requests, and those among them that were counted before
    rejected, unlabelled : messages or records that are not counted: invalid, or without label and id
    lost : numbers that the topic no longer has, although the service has not counted them
    """

    messages: int = 0
    rows: int = 0
    requests: int = 0
    duplicates: int = 0
    rejected: int = 0
    unlabelled: int = 0
    lost: int = 0

    def __str__(self) -> str:
        return " ".join(f"{each.name}={getattr(self, each.name)}" for each in fields(self))


@dataclass
class Rejections:
    """Messages that are not counted: each is reported, and too many in a row stop the consumer.

    Attributes
    ----------
    on_rejected : called with topic, partition and each of them
    most : messages rejected in a row, without one valid row, that do not stop it
    n_together : of them until now
    """

    statistics: ConsumerStatistics
    on_rejected: Callable[[str, int, RejectedMessage], None]
    most: int
    n_together: int = 0

    def report(
        self, place: tuple[str, int], rejected: Iterable[RejectedMessage], has_rows: bool = False
    ) -> None:
        """Report what is not counted; `has_rows`: of messages among which others may be valid.

        Raises
        ------
        StreamError
            Too many in a row.
        """
        offsets: set[int] = set()
        for each in rejected:
            if each.rule == "labels_required":
                self.statistics.unlabelled += 1
            else:
                self.statistics.rejected += 1
                offsets.add(each.offset)
            self.on_rejected(*place, each)
        self.n_together += len(offsets)
        if self.n_together > self.most and not has_rows:
            raise StreamError(
                f"{self.n_together} messages in a row have no valid row; the last are of {place[0]} partition {place[1]}, "
                f"up to offset {max(offsets)}. Check the format of the messages and the definition of the model."
            )


def log_rejected(topic: str, partition: int, rejected: RejectedMessage) -> None:
    """Log a rejected message with its place."""
    log.error(
        "message_rejected topic=%s partition=%d offset=%d record=%s rule=%s detail=%s",
        topic, partition, rejected.offset, rejected.record, rejected.rule, rejected.detail,
    )  # fmt: skip


def as_json(topic: str, partition: int, rejected: RejectedMessage) -> str:
    """Return a rejected message as one line of JSON."""
    return json.dumps({"topic": topic, "partition": partition, **asdict(rejected)})


def is_passing(error: ServiceError) -> bool:
    """Return whether the same request may succeed later. After 500 a repeat is safe: the messages are numbered."""
    return error.retryable or error.status >= 500 or error.slug in PASSING
