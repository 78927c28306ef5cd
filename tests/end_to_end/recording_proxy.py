"""An HTTP proxy between a command and a service: it records what is sent, and may kill the command around a request."""

from __future__ import annotations

import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from tests.waiting import PATIENCE_S


class RecordingProxy:
    """Forwards each request to an address.

    Attributes
    ----------
    sent : every byte of requests, with their first lines and headers
    posts : bodies of POST requests
    kills : process to kill, and whether before or after the next POST arrives at the service; None for none
    """

    def __init__(self, target: str) -> None:
        self.sent, self.posts = bytearray(), list[bytes]()
        self.kills: tuple[int, str] | None = None
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._forward(b"")

            def do_POST(self) -> None:
                self._forward(self.rfile.read(int(self.headers["content-length"])))

            def log_message(self, *_: object) -> None:
                return None

            def _forward(self, body: bytes) -> None:
                proxy.sent += f"{self.requestline}\n{self.headers}".encode() + body
                if self.command == "POST":
                    proxy.posts.append(body)
                    if proxy._kill("before"):
                        return
                headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
                found = httpx.request(
                    self.command,
                    target + self.path,
                    content=body,
                    headers=headers,
                    timeout=PATIENCE_S,
                )
                if self.command == "POST" and proxy._kill("after"):
                    return
                self.send_response(found.status_code)
                self.send_header("Content-Type", found.headers.get("content-type", ""))
                self.send_header("Content-Length", str(len(found.content)))
                self.end_headers()
                self.wfile.write(found.content)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> RecordingProxy:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _kill(self, when: str) -> bool:
        if self.kills is None or self.kills[1] != when:
            return False
        os.kill(self.kills[0], signal.SIGKILL)
        self.kills = None
        return True
