"""A server that answers as a test says, for what the real service cannot be made to do."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from calibrant.client import transport
from calibrant.client.row_log import LogOptions, RowLog
from tests.waiting import PATIENCE_S

Answer = tuple[int, dict[str, str], bytes]


def problem(status: int, headers: dict[str, str] | None = None, **members: Any) -> Answer:
    body = {"type": "/v1/problems/made-up", "detail": "made up", "status": status} | members
    return status, headers or {}, json.dumps(body).encode()


class Service:
    """Accepts batches; before that it answers with `script`, one entry per request, or what `respond` returns."""

    def __init__(
        self, respond: Callable[[dict[str, Any]], Any] | None = None, port: int = 0
    ) -> None:
        self.script: list[Any] = []
        self.raw: list[bytes] = []
        self.times: list[float] = []
        self.accepted_ids: list[str] = []
        self.respond = respond
        self._logs: list[RowLog] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                service._post(self)

            def log_message(self, *arguments: Any) -> None:
                pass

        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self.raw]

    def log(self, linger: float = 0.0, **options: Any) -> RowLog:
        address = transport.Address(f"http://127.0.0.1:{self.port}", None, PATIENCE_S)
        made = RowLog(
            "m", LogOptions(linger=linger, **options), lambda: transport.Transport(address)
        )
        self._logs.append(made)
        return made

    def _post(self, handler: BaseHTTPRequestHandler) -> None:
        raw = handler.rfile.read(int(handler.headers["Content-Length"]))
        self.times.append(time.monotonic())
        self.raw.append(raw)
        body = json.loads(raw)
        answer = self.script.pop(0) if self.script else None
        if answer is None and self.respond is not None:
            answer = self.respond(body)
        if answer == "disconnect":
            handler.close_connection = True
            return
        if answer is None:
            self.accepted_ids += body.get("ids", [])
            n = len(body.get("probabilities") or body.get("logits") or [None])
            answer = 202, {}, json.dumps({"accepted": n, "rejected": 0, "errors": []}).encode()
        status, headers, content = answer
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)

    def __enter__(self) -> Service:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        for log in self._logs:
            if not log.statistics.pending and log.statistics.logged:
                log.close(PATIENCE_S)
        self._server.shutdown()
        self._server.server_close()
