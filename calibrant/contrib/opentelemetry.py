"""OpenTelemetry: events `gen_ai.evaluation.result` of judges and people, from the SDK or as OTLP exports over HTTP.

judges = [Judge("helpfulness", model="judge.helpfulness", low=1, high=5, human="human.helpfulness")]
provider.add_log_record_processor(BatchLogRecordProcessor(EvaluationExporter(client, judges)))
make_server("", 4318, Receiver(client, judges)).serve_forever()  # OTLP over HTTP, as a Collector exports it
"""

from __future__ import annotations

import gzip
import io
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from calibrant.client.errors import ClientError, ServiceError
from calibrant.contrib.evaluations import (
    EVENT,
    Evaluation,
    Judge,
    Outcome,
    evaluation,
    of_json,
    send,
)
from calibrant.contrib.extras import missing

try:
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
        ExportLogsServiceRequest,
        ExportLogsServiceResponse,
    )
    from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
except ModuleNotFoundError as error:
    raise missing(error, "telemetry") from error

PATH = "/v1/logs"
PROTOBUF, JSON = "application/x-protobuf", "application/json"
MAX_BODY_BYTES = 16 * 1024 * 1024
RETRIED = (408, 429, 502, 503, 504)
logger = logging.getLogger(__name__)


def read_export(body: bytes, content_type: str = PROTOBUF) -> list[Evaluation]:
    """Return the evaluation events in the body of an OTLP export of logs.

    Parameters
    ----------
    body : bytes, without compression
    content_type : "application/x-protobuf" or "application/json"

    Raises
    ------
    ValueError
        It is no such body.
    """
    try:
        if content_type.partition(";")[0].strip() == JSON:
            return list(of_json(json.loads(body)))
        return list(_of_protobuf(ExportLogsServiceRequest.FromString(body)))
    except (DecodeError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"Received a body that is no export of logs: {error}") from error


class EvaluationExporter(LogRecordExporter):
    """Exporter of the OpenTelemetry SDK, for processes that send their events without a Collector.

    Parameters
    ----------
    client : calibrant.Client
    judges : what to send; other log records are ignored

    Attributes
    ----------
    outcome : of all events so far
    """

    def __init__(self, client: Any, judges: Sequence[Judge]) -> None:
        self.client, self.judges = client, list(judges)
        self.outcome = Outcome()

    def export(self, batch: Sequence[Any]) -> LogRecordExportResult:
        """Send the evaluation events of a batch of log records."""
        try:
            found = send(self.client, self.judges, _of_records(batch))
        except ClientError as error:
            logger.warning("evaluations_not_sent error=%s", error)
            return LogRecordExportResult.FAILURE
        self.outcome.sent += found.sent
        self.outcome.rejected += found.rejected
        self.outcome.ignored += found.ignored
        self.outcome.last_error = found.last_error or self.outcome.last_error
        return LogRecordExportResult.SUCCESS

    def shutdown(self) -> None:
        """Do nothing: each export is sent when it returns."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Return that nothing waits."""
        return True


class Receiver:
    """A WSGI application that accepts OTLP exports of logs at `/v1/logs`, as protobuf or JSON, plain or gzip.

    Status 503 asks the sender to repeat the export. Events that cannot be used are reported as rejected log records.

    Parameters
    ----------
    client, judges : as in `EvaluationExporter`
    """

    def __init__(self, client: Any, judges: Sequence[Judge]) -> None:
        self.client, self.judges = client, list(judges)

    def __call__(
        self, environ: Mapping[str, Any], start_response: Callable[..., Any]
    ) -> list[bytes]:
        """Respond to one request."""
        content_type = environ.get("CONTENT_TYPE") or PROTOBUF
        is_json = content_type.startswith(JSON)
        status, content = self._respond(environ, content_type)
        body = content if isinstance(content, bytes) else _response(content, is_json)
        kind = "text/plain" if isinstance(content, bytes) else JSON if is_json else PROTOBUF
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [body]

    def _respond(self, environ: Mapping[str, Any], content_type: str) -> tuple[str, Any]:
        if (environ["REQUEST_METHOD"], environ["PATH_INFO"]) != ("POST", PATH):
            return "404 Not Found", b"Expected POST /v1/logs."
        try:
            length = int(environ.get("CONTENT_LENGTH") or 0)
            if length > MAX_BODY_BYTES:
                return "413 Content Too Large", f"Expected {MAX_BODY_BYTES} bytes.".encode()
            body = environ["wsgi.input"].read(length)
            if environ.get("HTTP_CONTENT_ENCODING") == "gzip":
                with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
                    body = file.read(MAX_BODY_BYTES + 1)
                if len(body) > MAX_BODY_BYTES:
                    return "413 Content Too Large", f"Expected {MAX_BODY_BYTES} bytes.".encode()
            return "200 OK", send(self.client, self.judges, read_export(body, content_type))
        except (ValueError, OSError, EOFError) as error:
            return "400 Bad Request", str(error).encode()
        except ServiceError as error:
            retried = error.status in RETRIED
            return ("503 Service Unavailable" if retried else "400 Bad Request"), str(
                error
            ).encode()
        except ClientError as error:
            return "503 Service Unavailable", str(error).encode()


def _response(outcome: Outcome, is_json: bool) -> bytes:
    if is_json:
        partial = {"rejectedLogRecords": outcome.rejected, "errorMessage": outcome.last_error}
        return json.dumps({"partialSuccess": partial} if outcome.rejected else {}).encode()
    found = ExportLogsServiceResponse()
    if outcome.rejected:
        found.partial_success.rejected_log_records = outcome.rejected
        found.partial_success.error_message = outcome.last_error or ""
    packed: bytes = found.SerializeToString()
    return packed


def _of_records(records: Iterable[Any]) -> Iterator[Evaluation]:
    """Yield the evaluations among log records of the SDK."""
    for each in records:
        record = each.log_record
        if record.event_name == EVENT:
            has_span = record.trace_id and record.span_id
            span = f"{record.trace_id:032x}-{record.span_id:016x}" if has_span else None
            at = record.timestamp or record.observed_timestamp or 0
            found = evaluation(record.attributes or {}, span, at)
            if found is not None:
                yield found


def _of_protobuf(request: Any) -> Iterator[Evaluation]:
    records = (
        record
        for resource in request.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    )
    for record in records:
        if record.event_name == EVENT:
            attributes = {
                each.key: getattr(each.value, each.value.WhichOneof("value") or "string_value")
                for each in record.attributes
            }
            has_span = record.trace_id and record.span_id
            span = f"{record.trace_id.hex()}-{record.span_id.hex()}" if has_span else None
            at = record.time_unix_nano or record.observed_time_unix_nano
            found = evaluation(attributes, span, at)
            if found is not None:
                yield found
