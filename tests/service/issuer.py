"""A made-up OpenID Connect issuer on this machine."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jwt
from joserfc.jwk import RSAKey

AUDIENCE = "calibrant"


class Issuer:
    """Serves its description and its keys, and signs tokens.

    Attributes
    ----------
    is_away : it answers with 503
    claimed : the issuer that its description names
    """

    def __init__(self) -> None:
        self.is_away = False
        self.n_reads = 0
        self.keys: list[RSAKey] = []
        self.rotate()
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer._answer(self)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.claimed = self.url

    def rotate(self) -> None:
        """Sign with a new key from now on; earlier ones are no longer listed."""
        number = len(self.keys)
        self.keys.append(RSAKey.generate_key(2048, {"kid": f"key-{number}"}, private=True))

    def token(self, key: RSAKey | None = None, alg: str = "RS256", **changed: Any) -> str:
        """Return a token of Ann, of the role `quality`; claims that are None are left out."""
        now = int(time.time())
        claims = {
            "iss": self.url, "aud": AUDIENCE, "sub": "7", "exp": now + 600, "iat": now,
            "preferred_username": "Ann Lee", "groups": ["staff", "quality"],
        } | changed  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        signing = key or self.keys[-1]
        header = {"alg": alg, "kid": signing.kid}
        return jwt.encode(header, claims, signing, algorithms=[alg])

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.n_reads += 1
        documents: dict[str, Any] = {
            "/.well-known/openid-configuration": {"issuer": self.claimed, "jwks_uri": f"{self.url}/keys"},
            "/keys": {"keys": [self.keys[-1].as_dict(private=False)]},
        }  # fmt: skip
        found = None if self.is_away else documents.get(handler.path)
        content = json.dumps(found).encode()
        handler.send_response(503 if found is None else 200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def __enter__(self) -> Issuer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
