"""A cluster of Kafka inside this process: librdkafka's own, which speaks the protocol over TCP with any client."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("confluent_kafka", reason="installed by `make test-adapters`")

from confluent_kafka import Consumer, Producer, TopicPartition

ROOT = Path(__file__).parents[3]
START_MS = 1_763_600_400_000
N_PARTITIONS = 4


class MockCluster:
    """One broker. It lives as long as this object.

    It accepts messages of any number of clients, and has consumer groups with rebalances. It has no transactions with markers
    in the log, no compaction and no retention by time.
    """

    def __init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1})
        brokers = self._producer.list_topics(timeout=30).brokers.values()
        self.address = ",".join(f"{each.host}:{each.port}" for each in brokers)

    def create(self, topic: str) -> None:
        """Make a topic: a cluster of tests makes what it is asked for, with four partitions."""
        found = self._producer.list_topics(topic, timeout=30).topics[topic]
        assert found.error is None and len(found.partitions) == N_PARTITIONS

    def send(
        self, topic: str, partition: int, values: list[bytes], time_ms: int = START_MS
    ) -> None:
        """Append messages."""
        for value in values:
            self._producer.produce(topic, value, partition=partition, timestamp=time_ms)
        assert self._producer.flush(60) == 0

    def committed(self, group: str, topic: str, partition: int) -> int:
        """Return the offset that a group has committed."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group})
        try:
            (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=30)
            return int(found.offset)
        finally:
            consumer.close()


def record(seed: int, **more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"probabilities": rng.dirichlet(np.ones(3)).tolist(), "label": int(seed % 3)} | more


def values(first: int, end: int) -> list[bytes]:
    return [json.dumps(record(seed)).encode() for seed in range(first, end)]


def consume(
    brokers: str, url: str, model: str, log: Path, *options: str
) -> subprocess.Popen[bytes]:
    """Start the command in a process of its own."""
    command = [
        sys.executable, "-c", "from calibrant.cli import main; main()", "consume", model, "--topic", model,
        "--brokers", brokers, "--url", url, "--linger", "0.3", "--config", "session.timeout.ms=6000",
        "--config", "heartbeat.interval.ms=500", *options,
    ]  # fmt: skip
    with log.open("ab") as lines:
        return subprocess.Popen(command, cwd=ROOT, stdout=lines, stderr=lines)
