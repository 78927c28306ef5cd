"""Kafka: messages of a topic as panes, each message once.

    consumer = PaneConsumer(client, "triage", ["predictions"], {"bootstrap.servers": "kafka:9092"})
    consumer.run(stop)

A partition is a source of the service: `topic-partition`, with the offsets of its messages. The service's watermark, not the offset
that the consumer group has committed, determines where a partition continues. So a message counts once, whatever is killed, rebalanced or
repeated. Messages wait as bytes for `linger_s` and are then filled into panes: no row leaves the process.

The client is confluent-kafka: it is maintained by Confluent, its wheels have librdkafka, and this has a cluster for tests.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from calibrant.client import Client, ServiceError, ServiceUnreachable
from calibrant.client.numbered_panes import panes_request
from calibrant.client.operations import settings, watermark
from calibrant.contrib.extras import missing
from calibrant.contrib.ids import fitted
from calibrant.contrib.numbered_messages import (
    Decode,
    Message,
    MessageRange,
    RejectedMessage,
    Target,
    range_of,
    read_records,
)
from calibrant.contrib.partition_queue import PartitionQueue

try:
    from confluent_kafka import (
        OFFSET_BEGINNING,
        TIMESTAMP_NOT_AVAILABLE,
        Consumer,
        KafkaError,
        KafkaException,
        TopicPartition,
    )
except ModuleNotFoundError as error:
    raise missing(error, "kafka") from error

log = logging.getLogger("calibrant.kafka")
POLL_S = 0.2
MESSAGES_PER_POLL = 1000
# Questions to the brokers block the consumer, which must poll every five minutes.
BROKER_TIMEOUT_S = 10.0
MIN_WAIT_S, MAX_WAIT_S = 0.2, 30.0
# Problems of 409 that pass without a change of the request.
PASSING = ("import-unfinished",)
CONFIG = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "partition.assignment.strategy": "cooperative-sticky",
    "queued.max.messages.kbytes": 16_384,
}
Place = tuple[str, int]
__all__ = [
    "ConsumerOptions",
    "ConsumerStatistics",
    "KafkaException",
    "PaneConsumer",
    "StreamError",
    "as_json",
    "log_rejected",
]


class StreamError(RuntimeError):
    """The consumer stops, because to continue could lose messages."""


@dataclass(frozen=True)
class ConsumerOptions:
    """How messages are sent.

    Parameters
    ----------
    linger_s : seconds for which messages are collected into panes
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
    rows : in panes that the service has accepted
    requests, duplicates : accepted requests, and those among them that were counted before
    rejected, unlabelled : messages or records that are not counted: invalid, or without label
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


class PaneConsumer:
    """Consumer that fills the messages of topics into panes and posts them.

    Parameters
    ----------
    client : of the service
    model : of the service, declared before
    topics : their messages are predictions with labels (`decode`)
    config : of librdkafka: at least `bootstrap.servers`. `group.id` defaults to `calibrant.<model>`.
    decode : returns the records of a message
    on_rejected : called with topic, partition and each message or record that is not counted, before the service accepts the request
        around it. After a crash it may be called again. Default: a line in the log.
    options : ConsumerOptions
    """

    def __init__(
        self,
        client: Client,
        model: str,
        topics: Sequence[str],
        config: Mapping[str, Any],
        *,
        decode: Decode = read_records,
        on_rejected: Callable[[str, int, RejectedMessage], None] | None = None,
        options: ConsumerOptions = ConsumerOptions(),
    ) -> None:
        self.statistics = ConsumerStatistics()
        self._model, self._topics, self._decode, self._options = model, topics, decode, options
        self._on_rejected = on_rejected or log_rejected
        self._http = client.connect()
        self._target = self._read_target()
        self._queues: dict[Place, PartitionQueue] = {}
        self._is_paused = False
        self._n_rejected_together = 0
        self._error: BaseException | None = None
        own = {"group.id": f"calibrant.{model}"}
        self._consumer = Consumer({**own, **config, **CONFIG})

    def run(self, stop: Callable[[], bool]) -> None:
        """Consume until `stop` returns True, then send what waits.

        Raises
        ------
        StreamError
            A topic was made again, or nothing that it contains is valid.
        ServiceError
            The service rejects requests for another reason than their content.
        KafkaException
            The client of Kafka cannot continue.
        """
        self._consumer.subscribe(
            list(self._topics),
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._lost,
        )
        try:
            while not stop():
                self._step(POLL_S)
            self._flush(self._queues, self._options.exit_timeout_s)
            log.info("consumer_stopped %s", self.statistics)
        finally:
            self._queues.clear()
            self._consumer.close()
            self._http.close()

    def _step(self, timeout_s: float) -> None:
        for found in self._consumer.consume(MESSAGES_PER_POLL, timeout_s):
            self._take(found)
        if self._error is not None:
            raise self._error
        now = time.monotonic()
        for place, queue in list(self._queues.items()):
            if queue.first is None and now >= queue.retry_at:
                self._place(place, queue)
            linger_s = 0.0 if self._is_paused else self._options.linger_s
            if queue.is_due(now, linger_s):
                self._send(place, queue)
        self._bound_memory()

    def _take(self, found: Any) -> None:
        error = found.error()
        place = (found.topic(), found.partition())
        queue = self._queues.get(place)
        if error is None:
            if queue is not None:
                self.statistics.messages += 1
                queue.add(_message(found), time.monotonic())
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            if queue is not None and queue.first is not None:
                queue.unplace()  # retention has passed the position: it is found again
        elif error.fatal():
            raise KafkaException(error)
        else:
            log.warning("kafka_error error=%s", error)

    def _bound_memory(self) -> None:
        n_bytes = sum(each.n_bytes for each in self._queues.values())
        if not self._is_paused and n_bytes > self._options.max_bytes:
            self._is_paused = True
            self._consumer.pause(self._placed())
        elif self._is_paused and n_bytes <= self._options.max_bytes // 2:
            self._is_paused = False
            self._consumer.resume(self._placed())

    def _placed(self) -> list[Any]:
        return [
            TopicPartition(*place) for place, each in self._queues.items() if each.first is not None
        ]

    # Where a partition begins

    def _place(self, place: Place, queue: PartitionQueue) -> None:
        """Continue a partition at the watermark of the service. Messages that retention has deleted since are reported."""
        try:
            mark = self._http.once(watermark(self._model, queue.source))
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(*place), timeout=BROKER_TIMEOUT_S
            )
            first = mark if mark is not None else self._first_offset(place, low, high)
        except (ServiceError, ServiceUnreachable, KafkaException) as error:
            self._wait(queue, error)
            return
        if mark is not None and mark > high:
            raise StreamError(
                f"The service has counted {place[0]} partition {place[1]} up to {mark}, but its last offset is {high}: "
                "the topic was made again or has lost messages. Give its messages another source (`source`)."
            )
        start = max(first, low)
        try:
            self._consumer.seek(TopicPartition(*place, start))
        except KafkaException as error:
            self._wait(queue, error)
            return
        queue.place(first, start)
        if first < low:
            self.statistics.lost += low - first
            log.error("messages_lost topic=%s partition=%d from=%d to=%d", *place, first, low)
        log.info(
            "partition_placed topic=%s partition=%d watermark=%s start=%d", *place, mark, start
        )
        if not self._is_paused:
            self._consumer.resume([TopicPartition(*place)])

    def _first_offset(self, place: Place, low: int, high: int) -> int:
        """Return where a partition begins that the service does not know."""
        (found,) = self._consumer.committed([TopicPartition(*place)], timeout=BROKER_TIMEOUT_S)
        if found.error is not None:
            raise KafkaException(found.error)
        if found.offset >= 0:
            return int(found.offset)
        return low if self._options.start == "earliest" else high

    # Requests

    def _send(self, place: Place, queue: PartitionQueue) -> bool:
        """Send the next request of a partition once; return whether the partition has advanced."""
        found = queue.prepared(lambda some: range_of(some, self._target, self._decode))
        self._report(place, queue.unreported(found), found)
        now = time.monotonic()
        if not found.panes:
            queue.leave_out(found, now)
            return True
        assert queue.first is not None
        offsets = (queue.first, found.end)
        try:
            receipt = self._http.once(
                panes_request(self._model, queue.source, offsets, found.panes)
            )
        except ServiceUnreachable as error:
            self._wait(queue, error)
        except ServiceError as error:
            return self._reject(place, queue, found, error)
        else:
            self.statistics.requests += 1
            self.statistics.duplicates += receipt.duplicate
            self.statistics.rows += 0 if receipt.duplicate else found.n_rows
            self._n_rejected_together = 0
            queue.accept(found.end, now)
            self._commit(place, found.end)
            return True
        return False

    def _reject(
        self, place: Place, queue: PartitionQueue, found: MessageRange, error: ServiceError
    ) -> bool:
        """Handle a request that the service rejected; return whether the partition has advanced."""
        now = time.monotonic()
        if error.watermark is not None:
            log.info(
                "watermark_followed topic=%s partition=%d watermark=%d", *place, error.watermark
            )
            if not queue.continue_at(error.watermark, now):
                queue.unplace()  # earlier messages are read again
            return True
        if _passes(error):
            self._wait(queue, error)
            return False
        if error.status not in (413, 422):
            raise error
        target = self._read_target()
        if target != self._target:
            self._target = target
            queue.refill()
        elif not queue.split():
            rule = error.violations[0].rule if error.violations else error.slug
            wrong = RejectedMessage(found.end - 1, None, rule, error.detail[:300])
            self._report(place, [wrong], MessageRange(found.end, 1, 0, (), (wrong,)))
            queue.leave_out(found, now)
        return True

    def _report(
        self, place: Place, rejected: Iterable[RejectedMessage], found: MessageRange
    ) -> None:
        offsets = set()
        for each in rejected:
            if each.rule == "no_label":
                self.statistics.unlabelled += 1
            else:
                self.statistics.rejected += 1
                offsets.add(each.offset)
            self._on_rejected(*place, each)
        self._n_rejected_together += len(offsets)
        if not found.n_rows and self._n_rejected_together > self._options.max_rejected:
            raise StreamError(
                f"{self._n_rejected_together} messages in a row have no valid row; the last are of {place[0]} partition {place[1]} "
                f"before offset {found.end}. Check the format of the messages and the definition of the model."
            )

    def _wait(self, queue: PartitionQueue, error: Exception) -> None:
        """Wait before a partition is tried again: as long as the service asks, else longer each time."""
        if isinstance(error, ServiceError) and not _passes(error):
            raise error
        if isinstance(error, KafkaException) and error.args and error.args[0].fatal():
            raise error
        named = getattr(error, "retry_after_s", None)
        wait_s = named or min(MAX_WAIT_S, MIN_WAIT_S * 2.0 ** min(queue.n_failures, 10))
        queue.fail(wait_s * (1.0 + 0.25 * random.random()), time.monotonic())
        log.warning("request_repeated source=%s wait_s=%.1f error=%s", queue.source, wait_s, error)

    def _commit(self, place: Place, offset: int) -> None:
        """Tell the consumer group, for its monitors: the service's watermark is what counts."""
        try:
            self._consumer.commit(offsets=[TopicPartition(*place, offset)], asynchronous=True)
        except KafkaException as error:
            log.info("commit_failed error=%s", error)

    def _read_target(self) -> Target:
        found: dict[str, Any] = self._http.run(settings(self._model))
        return Target.of(found)

    # Partitions come and go

    def _assigned(self, consumer: Any, partitions: Sequence[Any]) -> None:
        """Take partitions. They are paused until the service's watermark is known."""
        for each in partitions:
            name = f"{self._options.source or each.topic}-{each.partition}"
            self._queues[each.topic, each.partition] = PartitionQueue(fitted(name))
            each.offset = OFFSET_BEGINNING
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)

    def _revoked(self, consumer: Any, partitions: Sequence[Any]) -> None:
        """Send what waits before the partitions go to another consumer, which continues at the watermark in any case."""
        places = {(each.topic, each.partition) for each in partitions}
        going = {place: each for place, each in self._queues.items() if place in places}
        try:
            self._flush(going, self._options.exit_timeout_s)
        except (StreamError, ServiceError, KafkaException) as error:
            self._error = error  # raised where the consumer polls
        self._lost(consumer, partitions)

    def _lost(self, consumer: Any, partitions: Sequence[Any]) -> None:
        """Forget partitions that another consumer may have already."""
        for each in partitions:
            self._queues.pop((each.topic, each.partition), None)
        consumer.incremental_unassign(partitions)

    def _flush(self, queues: Mapping[Place, PartitionQueue], timeout_s: float) -> None:
        """Send what waits, for a time. The rest is read again by the consumer that continues."""
        until = time.monotonic() + timeout_s
        while any(len(each) for each in queues.values()):
            for place, queue in queues.items():
                if len(queue) and queue.first is not None and time.monotonic() >= queue.retry_at:
                    self._send(place, queue)
            waiting = [each for each in queues.values() if len(each) and each.first is not None]
            now = time.monotonic()
            if not waiting or now >= until:
                break
            time.sleep(max(0.0, min(min(each.retry_at for each in waiting), until) - now))


def _passes(error: ServiceError) -> bool:
    """Return whether the same request may succeed later. After 500 a repeat is safe: the messages are numbered."""
    return error.retryable or error.status >= 500 or error.slug in PASSING


def _message(found: Any) -> Message:
    kind, time_ms = found.timestamp()
    at = None if kind == TIMESTAMP_NOT_AVAILABLE else int(time_ms)
    return Message(found.offset(), found.value(), at, found.key(), found.headers() or ())


def log_rejected(topic: str, partition: int, rejected: RejectedMessage) -> None:
    """Log a rejected message with its place."""
    log.error(
        "message_rejected topic=%s partition=%d offset=%d record=%s rule=%s detail=%s",
        topic, partition, rejected.offset, rejected.record, rejected.rule, rejected.detail,
    )  # fmt: skip


def as_json(topic: str, partition: int, rejected: RejectedMessage) -> str:
    """Return a rejected message as one line of JSON."""
    return json.dumps({"topic": topic, "partition": partition, **asdict(rejected)})
