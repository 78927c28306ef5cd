"""Traces of a running service arrive at the endpoint that the environment names."""

import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx

from tests.forking import ForkedProcess, run_module
from tests.ports import reserved_port
from tests.waiting import PATIENCE_S, eventually

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Collector(HTTPServer):
    """Receiver of traces (OTLP over HTTP)."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.bodies: list[tuple[str, bytes]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Receiver(BaseHTTPRequestHandler):
    """Answers every request with success."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append((self.path, body))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Write nothing."""


def test_a_request_is_a_span_of_the_clients_trace(tmp_path):
    collector, port = Collector(), reserved_port()
    environment = os.environ | {
        "CALIBRANT_DATA_DIR": str(tmp_path),
        "CALIBRANT_PORT": str(port),
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }
    service = ForkedProcess(
        run_module, "service", environment=environment, log=tmp_path / "service.log"
    )
    try:
        answer = _answer(f"http://127.0.0.1:{port}/version")
        assert answer.headers["traceparent"].startswith(f"00-{TRACE}-")
        span = bytes.fromhex(answer.headers["traceparent"].split("-")[2])
        path, body = eventually(
            lambda: next((each for each in collector.bodies if span in each[1]), None)
        )
        assert path == "/v1/traces" and bytes.fromhex(TRACE) in body
    finally:
        service.terminate()
        service.wait(PATIENCE_S)
        collector.shutdown()
        collector.server_close()


def _answer(url: str) -> httpx.Response:
    headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    with httpx.Client(headers=headers, timeout=PATIENCE_S) as client:

        def answered() -> httpx.Response | None:
            try:
                return client.get(url)
            except httpx.TransportError:
                return None

        return eventually(answered, 3 * PATIENCE_S, 0.1)
