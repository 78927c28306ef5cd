"""Evaluation events of the OpenTelemetry SDK, through exporters and receiver, into the real service."""

from __future__ import annotations

import json
import threading
import time
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

pytest.importorskip("opentelemetry.sdk._logs", reason="installed by `make test-adapters`")

import httpx
from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import (
    BatchLogRecordProcessor,
    LogRecordExportResult,
)

import calibrant as cal
from calibrant.client import ServiceUnreachable
from calibrant.contrib.evaluations import EVENT, Judge
from calibrant.contrib.opentelemetry import (
    EvaluationExporter,
    Receiver,
    read_export,
)
from tests.adapters.examples import run_example
from tests.adapters.service import running_service

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
JUDGE = Judge("helpfulness", "judge", low=1, high=5, human="people", labels={"good": 1, "bad": 0})
PATIENCE_S = 300


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A service with the embedded store."""
    with running_service(tmp_path_factory.mktemp("service")) as address:
        yield address


@pytest.fixture
def client(url):
    with cal.Client(url) as found:
        yield found


def declare(url: str, name: str) -> Judge:
    """Declare a model of the service; return the judge that it is of."""
    response = httpx.put(f"{url}/v1/models/{name}", json={"task": "binary", "classes": 2})
    assert response.status_code == 201, response.text
    return Judge(JUDGE.name, name, JUDGE.low, JUDGE.high, JUDGE.human, JUDGE.labels)


def event(name, score=None, label=None, response=None, **other) -> LogRecord:
    attributes = {
        "gen_ai.evaluation.name": name,
        "gen_ai.evaluation.score.value": score,
        "gen_ai.evaluation.score.label": label,
        "gen_ai.response.id": response,
    }
    found = {key: each for key, each in attributes.items() if each is not None}
    return LogRecord(timestamp=time.time_ns(), event_name=EVENT, attributes=found, **other)


SCORES = [5.0, 4.0, 3, 1.0]
EVENTS = [
    *(event("helpfulness", score, "any wording", f"r{i}") for i, score in enumerate(SCORES)),
    *(
        event("people", None, label, f"r{i}")
        for i, label in enumerate(["good", "good", "bad", "bad"])
    ),
]


def emit(exporter, records) -> None:
    provider = LoggerProvider()
    processor = BatchLogRecordProcessor(exporter)
    provider.add_log_record_processor(processor)
    logger = provider.get_logger("test")
    for record in records:
        logger.emit(record)
    provider.force_flush()
    provider.shutdown()


def expect_calibration(client, model: str) -> None:
    """Wait for the four labelled predictions, and compare them with the library."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        report = client.model(model).metrics(["ece", "brier"])
        if report["ece"].n_ratings == 4 or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    expected = cal.evaluate([1.0, 0.75, 0.5, 0.0], [1, 1, 0, 0], "ece,brier")
    for slug in ("ece", "brier"):
        assert report[slug].value == pytest.approx(expected[slug].value, abs=1e-9)


def test_the_exporter_of_the_sdk_sends_predictions_and_labels(url, client):
    judge = declare(url, "judge.sdk")
    exporter = EvaluationExporter(client, [judge])
    others = [event("another", 0.5, None, "r0"), LogRecord(timestamp=1, body="no event")]
    invalid = [event("helpfulness", 6.0, None, "r9"), event("helpfulness", 2.0)]
    emit(exporter, [*EVENTS, *others, *invalid, event("people", None, "unsure", "r0")])
    outcome = exporter.outcome
    assert (outcome.sent, outcome.ignored, outcome.rejected) == (8, 1, 3)
    assert "expected good, bad" in outcome.last_error
    expect_calibration(client, "judge.sdk")


class Quiet(WSGIRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def receiver(url, client):
    judge = declare(url, "judge.otlp")
    server = make_server("127.0.0.1", 0, Receiver(client, [judge]), handler_class=Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/logs"
    server.shutdown()
    server.server_close()


def test_the_receiver_accepts_otlp_and_counts_a_repeated_export_once(client, receiver):
    bodies: list[bytes] = []

    class Kept(OTLPLogExporter):
        def export(self, batch):
            from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs

            bodies.append(encode_logs(batch).SerializeToString())
            return super().export(batch)

    emit(Kept(endpoint=receiver, compression=Compression.Gzip), EVENTS)
    (body,) = bodies
    headers = {"Content-Type": "application/x-protobuf"}
    again = httpx.post(receiver, content=body, headers=headers, timeout=PATIENCE_S)
    assert (again.status_code, again.content) == (200, b"")
    expect_calibration(client, "judge.otlp")
    bad = httpx.post(receiver, content=b"\xff\xff", headers=headers)
    assert bad.status_code == 400
    assert httpx.get(receiver).status_code == 404


def test_json_and_protobuf_hold_the_same_events():
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
    from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter

    memory = InMemoryLogRecordExporter()
    span = event("helpfulness", 2, trace_id=0xABC, span_id=0xDEF)
    emit(memory, [*EVENTS, span])
    request = encode_logs(memory.get_finished_logs())
    found = read_export(request.SerializeToString())
    assert len(found) == 9 and found[-1].id == f"{0xABC:032x}-{0xDEF:016x}"
    document = MessageToDict(request)
    for resource in document["resourceLogs"]:  # OTLP writes these ids in hexadecimal
        for scope in resource["scopeLogs"]:
            for record in scope["logRecords"]:
                if "traceId" in record:
                    record |= {"traceId": f"{0xABC:032x}", "spanId": f"{0xDEF:016x}"}
    assert read_export(json.dumps(document).encode(), "application/json") == found


def test_a_service_that_cannot_be_reached_fails_the_export():
    class Nowhere:
        def model(self, name):
            raise ServiceUnreachable("no response")

    exporter = EvaluationExporter(Nowhere(), [JUDGE])
    record = type("Record", (), {"log_record": EVENTS[0]})
    assert exporter.export([record]) is LogRecordExportResult.FAILURE


def test_the_example_of_the_documentation_runs(capsys):
    run_example("calibrant.contrib.opentelemetry")
    assert "helpfulness" in capsys.readouterr().out
