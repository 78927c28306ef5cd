"""Messages of Kafka against a real service: each counts once, whatever is killed, rebalanced, repeated or wrong."""

from __future__ import annotations

import json
import signal
import threading
import time

import pytest

pytest.importorskip("confluent_kafka", reason="the client is installed by `make test-adapters`")

import confluent_kafka

import calibrant as cal
from calibrant.client import ServiceError
from calibrant.contrib.kafka import ConsumerOptions, StreamError, TopicConsumer
from tests.adapters.examples import run_example
from tests.adapters.kafka.brokers import MockCluster, consume, record, values
from tests.end_to_end.deployment import Deployment
from tests.waiting import PATIENCE_S, eventually

# The cluster of tests forgets a consumer that has left only after its session.
SESSION = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
MODEL = {"task": "multiclass", "classes": 3, "pane": "PT1H"}


@pytest.fixture(scope="module")
def cluster():
    return MockCluster()


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    with Deployment(tmp_path_factory.mktemp("kafka"), n_workers=1) as found:
        yield found


def declare(deployment, cluster, model):
    assert deployment.client.put(f"/v1/models/{model}", json=MODEL).status_code == 201
    cluster.create(model)
    return f"http://127.0.0.1:{deployment.port}"


def n_of(deployment, model):
    found = deployment.client.get(f"/v1/models/{model}/metrics", params={"metrics": "ece"})
    return found.json()["n_predictions"] if found.status_code == 200 else -1


def watermark(deployment, model, partition=0):
    path = f"/v1/models/{model}/sources/{model}-{partition}"
    return deployment.get(path)["watermark"]


class Running:
    """A consumer in a thread of this process."""

    def __init__(self, cluster, url, model, **options):
        self.rejected = []
        self._stop = threading.Event()
        options = {"linger_s": 0.2} | options
        self.client = cal.Client(url)
        self.consumer = TopicConsumer(
            self.client, model, [model], {"bootstrap.servers": cluster.address, **SESSION},
            on_rejected=lambda *found: self.rejected.append(found), options=ConsumerOptions(**options),
        )  # fmt: skip
        self.error = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            self.consumer.run(self._stop.is_set)
        except Exception as error:
            self.error = error

    @property
    def has_ended(self):
        return not self._thread.is_alive()

    def stop(self):
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert self.has_ended
        return self.consumer.statistics


def test_every_message_counts_once_although_everything_is_killed(deployment, cluster, tmp_path):
    """Two consumers share four partitions; consumers, service and worker are killed in turn while messages arrive."""
    model, n = "killed", 1200
    url = declare(deployment, cluster, model)
    log = tmp_path / "consumers.log"
    running = [consume(cluster.address, url, model, log) for _ in range(2)]
    try:
        for step in range(6):
            for partition in range(4):
                first = 50 * step
                cluster.send(model, partition, values(first, first + 50))
            counted = n_of(deployment, model)
            eventually(lambda counted=counted: n_of(deployment, model) > counted)
            if step in (0, 2, 4):
                killed = running.pop(0)
                killed.kill()
                killed.wait()
                running.append(consume(cluster.address, url, model, log))
            for name in ("http", "worker0")[: step % 3]:
                deployment.kill(name)
                deployment.start(name)
            deployment.wait_ready()
        eventually(lambda: n_of(deployment, model) >= n)
        for each in running:
            each.send_signal(signal.SIGTERM)
        assert [each.wait(PATIENCE_S) for each in running] == [0, 0], log.read_text()
    finally:
        for each in running:
            each.kill()
    assert n_of(deployment, model) == n, log.read_text()
    assert [watermark(deployment, model, each) for each in range(4)] == [300] * 4
    table = {"probabilities": [], "labels": []}
    for seed in [*range(300)] * 4:
        found = record(seed)
        table["probabilities"].append(found["probabilities"])
        table["labels"].append(found["label"])
    expected = cal.evaluate(table["probabilities"], table["labels"], ["ece"])["ece"]
    found = deployment.get(f"/v1/models/{model}/metrics", metrics="ece")["metrics"]["ece"]["value"]
    assert found == pytest.approx(float(expected), abs=1e-12)


def test_sigterm_sends_what_waits(deployment, cluster, tmp_path):
    model = "terminated"
    url = declare(deployment, cluster, model)
    cluster.send(model, 0, values(0, 5))
    log = tmp_path / "consumer.log"
    running = consume(cluster.address, url, model, log)
    eventually(lambda: watermark(deployment, model) == 5)
    running.send_signal(signal.SIGTERM)
    assert running.wait(PATIENCE_S) == 0
    # These wait for an hour, unless the consumer is told to end.
    running = consume(cluster.address, url, model, log, "--linger", "3600")
    cluster.send(model, 0, values(5, 25))
    eventually(lambda: b"start=5" in log.read_bytes())
    eventually(lambda: messages_read(log, running) == 0)
    assert watermark(deployment, model) == 25, log.read_text()
    assert "rows=20" in log.read_text()


def messages_read(log, running):
    """Tell a consumer to end until it has; it reads for a while before the first signal."""
    try:
        return running.wait(3)
    except Exception:
        # A second signal could end a process that is about to exit.
        if b"rows=20" not in log.read_bytes():
            running.send_signal(signal.SIGTERM)
        return None


def test_messages_that_cannot_be_used_are_reported_with_their_place(deployment, cluster):
    model = "poison"
    url = declare(deployment, cluster, model)
    sent = values(0, 30)
    sent[3], sent[7] = b"\xff{", b'{"probabilities": [0.5, 0.5, 0.5], "label": 1}'
    # The service alone knows that this time is too far in the future.
    sent[12] = json.dumps(record(12, event_time="2400-01-01T00:00:00Z")).encode()
    sent[20] = json.dumps(record(20, label=None)).encode()
    cluster.send(model, 0, sent)
    running = Running(cluster, url, model)
    eventually(lambda: watermark(deployment, model) == 30)
    statistics = running.stop()
    assert running.error is None
    places = {
        (topic, partition, each.offset): each.rule for topic, partition, each in running.rejected
    }
    assert places == {
        (model, 0, 3): "unreadable", (model, 0, 7): "row_sum", (model, 0, 12): "future", (model, 0, 20): "labels_required",
    }  # fmt: skip
    assert len(running.rejected) == 4
    assert (statistics.rows, statistics.rejected, statistics.unlabelled) == (26, 3, 1)
    eventually(lambda: n_of(deployment, model) == 26)


def test_messages_of_another_format_stop_the_consumer(deployment, cluster):
    model = "other-format"
    url = declare(deployment, cluster, model)
    cluster.send(model, 0, [b"<xml/>"] * 50)
    running = Running(cluster, url, model, max_rejected=20)
    eventually(lambda: running.has_ended)
    assert isinstance(running.error, StreamError) and "messages in a row" in str(running.error)
    assert watermark(deployment, model) is None


def test_it_continues_at_the_watermark_and_not_at_the_offset_of_the_group(deployment, cluster):
    """The watermark is ahead of the group, where a commit was lost, and numbers have gaps."""
    model = "ahead"
    url = declare(deployment, cluster, model)
    cluster.send(model, 0, values(0, 40))
    body = {
        "probabilities": [record(i)["probabilities"] for i in range(15)],
        "labels": [i % 3 for i in range(15)],
    }
    deployment.post(
        f"/v1/models/{model}/predictions", body | {"source": f"{model}-0", "offsets": [0, 15]}
    )
    running = Running(cluster, url, model)
    eventually(lambda: watermark(deployment, model) == 40)
    assert running.stop().rows == 25
    eventually(lambda: n_of(deployment, model) == 40)
    eventually(lambda: cluster.committed(f"calibrant.{model}", model, 0) == 40)


def test_another_sender_of_the_source_is_followed(deployment, cluster):
    """A consumer that has lost its partition without a notice: what it still sends overlaps, and nothing counts twice."""
    model = "overlapping"
    url = declare(deployment, cluster, model)
    cluster.send(model, 0, values(0, 20))
    running = Running(cluster, url, model, linger_s=1.0)
    eventually(lambda: running.consumer.statistics.messages == 20)
    body = {
        "probabilities": [record(i)["probabilities"] for i in range(30)],
        "labels": [i % 3 for i in range(30)],
    }
    some = {name: column[:8] for name, column in body.items()}
    deployment.client.post(
        f"/v1/models/{model}/predictions", json=some | {"source": f"{model}-0", "offsets": [0, 8]}
    )
    cluster.send(model, 0, values(20, 30))
    eventually(lambda: watermark(deployment, model) == 30)
    running.stop()
    assert running.error is None
    eventually(lambda: n_of(deployment, model) == 30)


def test_a_topic_that_was_made_again_stops_the_consumer(deployment, cluster):
    model = "made-again"
    url = declare(deployment, cluster, model)
    cluster.send(model, 0, values(0, 5))
    body = {"probabilities": [record(1)["probabilities"]], "labels": [1]}
    deployment.post(
        f"/v1/models/{model}/predictions", body | {"source": f"{model}-0", "offsets": [0, 90]}
    )
    running = Running(cluster, url, model)
    eventually(lambda: running.has_ended)
    assert isinstance(running.error, StreamError) and "made again" in str(running.error)
    # Under another source its messages count.
    running = Running(cluster, url, model, source="second")
    eventually(lambda: deployment.get(f"/v1/models/{model}/sources/second-0")["watermark"] == 5)
    running.stop()
    eventually(lambda: n_of(deployment, model) == 6)


def test_the_memory_of_waiting_messages_is_bounded(deployment, cluster):
    """Far more messages than fit; the service is away meanwhile, so none can be sent."""
    model = "bounded"
    url = declare(deployment, cluster, model)
    running = Running(cluster, url, model, max_bytes=100_000)
    eventually(
        lambda: running.consumer._queues and running.consumer._queues[model, 0].first is not None
    )
    deployment.kill("http")
    cluster.send(model, 0, values(0, 3000))
    eventually(lambda: running.consumer._is_paused)
    most = 0
    for _ in range(100):
        most = max(most, sum(each.n_bytes for each in list(running.consumer._queues.values())))
        threading.Event().wait(0.02)
    one_poll = 1000 * 600
    assert 100_000 < most < 100_000 + one_poll < 3000 * 480
    deployment.start("http")
    deployment.wait_ready()
    eventually(lambda: watermark(deployment, model) == 3000)
    running.stop()
    eventually(lambda: n_of(deployment, model) == 3000)


class Replaced:
    """A consumer of Kafka with some methods replaced."""

    def __init__(self, real, **methods):
        self._real, self._methods = real, methods

    def __getattr__(self, name):
        return self._methods.get(name) or getattr(self._real, name)


def test_messages_that_retention_has_deleted_are_reported(deployment, cluster, monkeypatch, caplog):
    """The watermark of the service is before the first offset of the topic: the messages between were never read."""
    model = "deleted"
    url = declare(deployment, cluster, model)
    cluster.send(model, 0, values(0, 20))
    body = {"probabilities": [record(1)["probabilities"]], "labels": [1]}
    deployment.post(
        f"/v1/models/{model}/predictions", body | {"source": f"{model}-0", "offsets": [0, 4]}
    )
    offsets = {"get_watermark_offsets": lambda *_, **__: (9, 20)}
    monkeypatch.setattr(
        "calibrant.contrib.kafka.Consumer",
        lambda config: Replaced(confluent_kafka.Consumer(config), **offsets),
    )
    running = Running(cluster, url, model)
    eventually(lambda: watermark(deployment, model) == 20)
    statistics = running.stop()
    assert statistics.lost == 5 and statistics.rows == 11
    assert f"messages_lost topic={model} partition=0 from=4 to=9" in caplog.text


def test_offsets_without_messages_belong_to_the_next_request(deployment, cluster, monkeypatch):
    """As after compaction and aborted transactions: whole requests lack their first messages, and nothing is a gap."""
    model = "compacted"
    url = declare(deployment, cluster, model)

    class Compacted(Replaced):
        def consume(self, *given):
            found = self._real.consume(*given)
            return [each for each in found if each.error() or each.offset() % 10 in (4, 8)]

    monkeypatch.setattr(
        "calibrant.contrib.kafka.Consumer",
        lambda config: Compacted(confluent_kafka.Consumer(config)),
    )
    running = Running(cluster, url, model)
    for first in range(0, 60, 20):
        cluster.send(model, 0, values(first, first + 20))
        eventually(lambda first=first: watermark(deployment, model) == first + 19)
    statistics = running.stop()
    assert running.error is None
    assert (statistics.rows, statistics.duplicates, statistics.lost) == (12, 0, 0)
    eventually(lambda: n_of(deployment, model) == 12)


def test_it_waits_as_long_as_the_service_asks(deployment, cluster):
    model = "asked"
    url = declare(deployment, cluster, model)
    running = Running(cluster, url, model)
    send, waits = running.consumer._http.once, []
    refusals = [ServiceError(429, {}, "1"), ServiceError(503, {}, "2"), ServiceError(500, {})]

    def once(operation):
        if operation.method == "POST" and refusals:
            raise refusals.pop(0)
        return send(operation)

    def wait(queue, error):
        real(queue, error)
        waits.append(queue.retry_at - time.monotonic())

    real, running.consumer._wait = running.consumer._wait, wait
    running.consumer._http.once = once
    cluster.send(model, 0, values(0, 8))
    eventually(lambda: watermark(deployment, model) == 8)
    running.stop()
    assert running.error is None and len(waits) == 3
    # The pause after a response is at least what the response asks, less the time until it is measured here.
    assert waits[0] > 0.5 and waits[1] > 1.5
    eventually(lambda: n_of(deployment, model) == 8)


def test_what_the_service_rejects_for_good_stops_the_consumer(deployment, cluster):
    model = "forbidden"
    url = declare(deployment, cluster, model)
    running = Running(cluster, url, model)
    send = running.consumer._http.once

    def once(operation):
        if operation.method == "POST":
            raise ServiceError(403, {"type": "/v1/problems/forbidden"})
        return send(operation)

    running.consumer._http.once = once
    cluster.send(model, 0, values(0, 8))
    eventually(lambda: running.has_ended)
    assert isinstance(running.error, ServiceError) and running.error.status == 403
    assert watermark(deployment, model) is None


def test_the_example_runs(deployment, cluster, monkeypatch):
    url = declare(deployment, cluster, "triage")
    cluster.send("triage", 0, values(0, 3))
    monkeypatch.setenv("CALIBRANT_URL", url)
    monkeypatch.setenv("CALIBRANT_KAFKA_BROKERS", cluster.address)
    run_example("calibrant.contrib.kafka")
    eventually(lambda: n_of(deployment, "triage") == 3)
