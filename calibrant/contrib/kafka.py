"""Kafka: messages of a topic as rows, each message once.

    consumer = TopicConsumer(client, "triage", ["predictions"], {"bootstrap.servers": "kafka:9092"})
    consumer.run(stop)

A partition is a source of the service: `topic-partition`, with the offsets of its messages. The service's watermark, not the offset
that the consumer group has committed, determines where a partition continues. So a message counts once, whatever is killed, rebalanced or
repeated. Messages wait as bytes for `linger_s` and are then sent together.

The client is confluent-kafka: it is maintained by Confluent, its wheels have librdkafka, and this has a cluster for tests.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from calibrant.client import Client, ServiceError, ServiceUnreachable
from calibrant.client.operations import watermark
from calibrant.contrib.consumer_options import (
    ConsumerOptions,
    ConsumerStatistics,
    Rejections,
    StreamError,
    as_json,
    is_passing,
    log_rejected,
)
from calibrant.contrib.extras import missing
from calibrant.contrib.numbered_messages import (
    MAX_DETAIL,
    Decode,
    Message,
    MessageRange,
    RejectedMessage,
    read_records,
)
from calibrant.contrib.partition_queue import PartitionQueue
from calibrant.input.names import fitted

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
    "StreamError",
    "TopicConsumer",
    "as_json",
    "log_rejected",
]


class TopicConsumer:
    """Consumer that sends the messages of topics to a model.

    Parameters
    ----------
    client : of the service
    model : of the service
    topics : their messages are predictions (`decode`)
    config : of librdkafka: at least `bootstrap.servers`. `group.id` defaults to `calibrant.<model>`.
    decode : returns the records of a message
    on_rejected : called with topic, partition and each message or record that is not counted. After a crash, it may be called again
        or not be called for those of the last request. Default: a line in the log.
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
        options: ConsumerOptions | None = None,
    ) -> None:
        self.statistics = ConsumerStatistics()
        self._model, self._topics, self._decode = model, topics, decode
        self._options = options or ConsumerOptions()
        self._rejections = Rejections(
            self.statistics, on_rejected or log_rejected, self._options.max_rejected
        )
        self._http = client.connect()
        self._queues: dict[Place, PartitionQueue] = {}
        self._is_paused = False
        self._error: BaseException | None = None
        self._consumer = Consumer({"group.id": f"calibrant.{model}", **config, **CONFIG})

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

    def _send(self, place: Place, queue: PartitionQueue) -> bool:
        """Send the next request of a partition once; return whether the partition has advanced."""
        found = queue.prepared(self._decode)
        self._rejections.report(place, queue.unreported(found), bool(found.rows))
        if not found.rows:
            queue.leave_out(found.end)
            return True
        assert queue.first is not None
        try:
            receipt = self._http.once(found.request(self._model, queue.source, queue.first))
        except ServiceUnreachable as error:
            self._wait(queue, error)
        except ServiceError as error:
            return self._reject(place, queue, found, error)
        else:
            self.statistics.requests += 1
            self.statistics.duplicates += receipt.duplicate
            self.statistics.rows += 0 if receipt.duplicate else receipt.accepted
            self._rejections.report(place, found.rejected_by(receipt), has_rows=True)
            self._rejections.n_together = 0
            queue.accept(found.end)
            self._commit(place, found.end)
            return True
        return False

    def _reject(
        self, place: Place, queue: PartitionQueue, found: MessageRange, error: ServiceError
    ) -> bool:
        """Handle a request that the service rejected; return whether the partition has advanced."""
        if error.watermark is not None:
            log.info(
                "watermark_followed topic=%s partition=%d watermark=%d", *place, error.watermark
            )
            if not queue.continue_at(error.watermark):
                queue.unplace()  # earlier messages are read again
            return True
        if is_passing(error):
            self._wait(queue, error)
            return False
        if error.status not in (413, 422):
            raise error
        if not queue.split():
            first = error.violations[0] if error.violations else None
            rule, detail = (
                (error.slug, error.detail) if first is None else (first.rule, first.detail)
            )
            wrong = RejectedMessage(found.end - 1, None, rule, detail[:MAX_DETAIL])
            self._rejections.report(place, [wrong])
            queue.leave_out(found.end)
        return True

    def _wait(self, queue: PartitionQueue, error: Exception) -> None:
        """Wait before a partition is tried again: as long as the service asks, else longer each time."""
        if isinstance(error, ServiceError) and not is_passing(error):
            raise error
        if isinstance(error, KafkaException) and error.args and error.args[0].fatal():
            raise error
        wait_s = queue.fail(getattr(error, "retry_after_s", None), time.monotonic())
        log.warning("request_repeated source=%s wait_s=%.1f error=%s", queue.source, wait_s, error)

    def _commit(self, place: Place, offset: int) -> None:
        """Tell the consumer group, for its monitors: the service's watermark is what counts."""
        try:
            self._consumer.commit(offsets=[TopicPartition(*place, offset)], asynchronous=True)
        except KafkaException as error:
            log.info("commit_failed error=%s", error)

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


def _message(found: Any) -> Message:
    kind, time_ms = found.timestamp()
    at = None if kind == TIMESTAMP_NOT_AVAILABLE else int(time_ms)
    return Message(found.offset(), found.value(), at, found.key(), found.headers() or ())
