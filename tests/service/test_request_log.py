"""Lines of the log, ids of requests, and traces."""

import io
import json
import logging
import re
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from calibrant_server.service.app import OFF, TelemetryUnavailable, create_app, telemetry
from calibrant_server.service.engine import Connection
from calibrant_server.service.http import prometheus
from calibrant_server.service.security.key_file import hash_of
from calibrant_server.service.settings import Settings
from calibrant_server.workers import logs
from tests.service.conftest import PREDICTIONS, problem
from tests.service.fakes import unavailable

pytestmark = pytest.mark.anyio
TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
PARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


@pytest.fixture
def written():
    """What the service writes on standard error."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    logger = logging.getLogger("service")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield stream
    logger.removeHandler(handler)


def lines(written: io.StringIO) -> list[dict]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


@pytest.fixture
def app(tmp_path, inbox, registry):
    entries = [{"sha256": hash_of("k"), "name": "ann\nbob", "tenant": "t"}]
    settings = Settings(data_dir=tmp_path, keys=json.dumps({"keys": entries}))
    return create_app(settings, Connection(inbox, registry))


KEY = {"Authorization": "Bearer k"}


async def test_probes_have_no_line_unless_they_fail(client, written, inbox):
    for path in ("/livez", "/readyz", "/metrics"):
        assert (await client.get(path)).status_code == 200
    assert lines(written) == []
    inbox.trouble = unavailable()
    assert (await client.get("/readyz")).status_code == 503
    assert [each["status"] for each in lines(written)] == [503]


async def test_unknown_callers_cannot_fill_the_disk(client, written, monkeypatch):
    """Without a bound, 1,900 requests per second without a key wrote 76 GB a day."""
    now = 7.0
    monkeypatch.setattr(prometheus, "time", SimpleNamespace(monotonic=lambda: now))
    for _ in range(40):
        await client.get("/v1/models")
        await client.get("/nothing")
    n = Counter(each["status"] for each in lines(written))
    assert n.total() == prometheus.MAX_UNKNOWN_PER_S
    await client.get("/v1/models", headers=KEY)
    assert lines(written)[-1]["n_left_out"] == 70, "a known key always has a line"
    now = 8.0
    await client.get("/nothing")
    assert "n_left_out" not in lines(written)[-1] and lines(written)[-1]["path"] == "/nothing"


@pytest.mark.parametrize("path", ["/x%0a2026 INFO all is well", "/x%0d%0a%1b[2J", "/x%E2%80%A8y"])
async def test_a_path_cannot_forge_a_line(client, written, path):
    problem(await client.get(path), 404, "path-unknown")
    [line] = lines(written)
    assert line["path"] not in written.getvalue() and "\x1b" not in written.getvalue()
    assert (line["event"], line["status"], line["level"]) == ("request", 404, "info")


async def test_a_line_says_who_did_what(client, written):
    body = json.dumps(PREDICTIONS)
    answer = await client.post(
        "/v1/models/digits/predictions",
        content=body,
        headers=KEY | {"Content-Type": "application/json", "X-Request-Id": "order-17"},
    )
    [line] = lines(written)
    duration = line.pop("duration_ms")
    assert duration > 0 and line.pop("timestamp") and re.fullmatch("[0-9a-f]{32}", line["trace_id"])
    del line["trace_id"]
    assert line.pop("key_id").startswith("k_")
    assert line == {
        "event": "request",
        "level": "info",
        "logger": "service.access",
        "request_id": "order-17",
        "method": "POST",
        "path": "/v1/models/digits/predictions",
        "operation": "ingestPredictions",
        "model": "digits",
        "tenant": "t",
        "key": "ann\nbob",
        "client": "127.0.0.1",
        "status": 202,
        "request_bytes": len(body),
        "response_bytes": len(answer.content),
    }


async def test_no_key_stands_in_the_log(client, written):
    await client.get("/v1/models", headers={"Authorization": "Bearer not-a-key-but-secret"})
    assert lines(written)[0]["status"] == 401
    assert "not-a-key-but-secret" not in written.getvalue()


@pytest.mark.parametrize("sent", ["a", "A-1_2.3:4@5/6+7=8", "x" * 128])
async def test_a_valid_request_id_is_returned(client, sent):
    answer = await client.get("/livez", headers={"X-Request-Id": sent})
    assert answer.headers.get_list("x-request-id") == [sent]


@pytest.mark.parametrize("sent", ["", "a b", "x" * 129, '"', "<b>", "é"])
async def test_an_invalid_request_id_is_replaced(client, sent):
    answer = await client.get("/livez", headers={"X-Request-Id": sent.encode()})
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])


async def test_two_request_ids_are_replaced(client):
    headers = [("X-Request-Id", "a"), ("X-Request-Id", "b")]
    answer = await client.get("/livez", headers=headers)
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])


async def test_a_trace_is_continued_with_a_span_of_our_own(client):
    answer = await client.get("/livez", headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})
    found = PARENT.fullmatch(answer.headers["traceparent"])
    assert found and found[1] == TRACE and found[2] != SPAN and found[3] == "01"


@pytest.mark.parametrize(
    "sent", ["", "00-0-0-0", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", "x" * 999]
)
async def test_an_invalid_trace_begins_a_new_one(client, sent):
    answer = await client.get("/livez", headers={"traceparent": sent})
    found = PARENT.fullmatch(answer.headers["traceparent"])
    assert found and found[1] not in (TRACE, "0" * 32) and found[3] == "00"


async def test_problems_carry_the_id_and_whether_to_retry(client, inbox):
    missing = await client.get("/v1/models/m", headers=KEY | {"X-Request-Id": "r-1"})
    found = problem(missing, 404, "model-unknown")
    assert (found["request_id"], found["retryable"]) == ("r-1", False)
    inbox.trouble = unavailable()
    posted = await client.post("/v1/models/m/predictions", json=PREDICTIONS, headers=KEY)
    assert problem(posted, 503, "store-unavailable")["retryable"] is True


async def test_an_unexpected_error_writes_bounded_lines(client, inbox, written):
    def fall(depth: int) -> None:
        fall(depth + 1)

    async def fail(model):
        fall(0)

    inbox.tallies = fail
    await client.put("/v1/models/m", json={"classes": 3}, headers=KEY)
    written.truncate(0)
    written.seek(0)
    problem(await client.get("/v1/models/m", headers=KEY), 500, "internal-error")
    failed, request = lines(written)
    assert (failed["event"], failed["level"]) == ("request_failed", "error")
    assert failed["request_id"] == request["request_id"]
    assert "RecursionError" in failed["exception"]
    assert len(written.getvalue()) < 2 * logs.MAX_EXCEPTION_CHARACTERS


def test_any_event_is_one_line_of_json(written, monkeypatch):
    # Pytest would keep the half of a surrogate pair, which its worker process cannot send.
    monkeypatch.setattr(logging.getLogger("service"), "propagate", False)
    logging.getLogger("service.x").info("entry=%s", "a\nb\u2028c\x00\ud800")
    [line] = written.getvalue().splitlines()
    assert json.loads(line)["event"] == "entry=a\nb\u2028c\x00\ud800"


def test_without_an_endpoint_nothing_is_traced():
    assert telemetry({}) == OFF
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    assert telemetry(endpoint | {"OTEL_SDK_DISABLED": "true"}) == OFF
    assert telemetry(endpoint)["tracing"] and not telemetry(endpoint)["metrics"]


def test_missing_packages_are_named(monkeypatch):
    name = "calibrant_server.service.app.PACKAGES"
    monkeypatch.setattr(name, ("opentelemetry.nothing",))
    with pytest.raises(TelemetryUnavailable, match=r"calibrant\[telemetry\]"):
        telemetry({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"})


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"msg": "request", "path": "/ü\n\u2028", "model": None, "n": 3}, "request"),
        (
            {"msg": "partition=%d error=%r", "args": (3, ValueError("x"))},
            "partition=3 error=ValueError('x')",
        ),
        ({"msg": "an object", "other": {"a": object}}, "an object"),
    ],
)
def test_a_line_has_event_time_level_logger_and_extra_fields(event, text):
    record = logging.makeLogRecord({"name": "service.x", "levelname": "WARNING", **event})
    line = logs.JsonFormatter().format(record)
    found = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z", found.pop("timestamp"))
    assert (found["event"], found["level"], found["logger"]) == (text, "warning", "service.x")
    extra = {name: value for name, value in event.items() if name not in ("msg", "args", "other")}
    assert extra.items() <= found.items() and line.isascii() and "\n" not in line


def test_a_long_exception_keeps_its_beginning_and_its_end():
    def odd(n):
        return even(n - 1)

    def even(n):
        return odd(n - 1) if n else 1 / 0

    try:
        even(200)
    except ZeroDivisionError:
        record = logging.makeLogRecord({"msg": "failed", "exc_info": sys.exc_info()})
    text = json.loads(logs.JsonFormatter().format(record))["exception"]
    assert text.startswith("Traceback") and text.endswith("division by zero")
    assert len(text) <= logs.MAX_EXCEPTION_CHARACTERS + 3
