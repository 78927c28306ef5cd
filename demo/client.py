"""HTTP client of the demo, and the curl command of each request."""

from __future__ import annotations

import shlex
from typing import Any
from urllib.parse import urlencode

import httpx

from demo.server import DemoFailed


class Client:
    """Client for JSON; an unexpected response raises an error with the service's text."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, timeout=90)

    def put(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._json(self._http.put(path, json=body))

    def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Change the existing resource in its current state."""
        current = self._http.get(path)
        self._expect_success(current)
        headers = {
            "If-Match": current.headers["etag"],
            "Content-Type": "application/merge-patch+json",
        }
        return self._json(self._http.patch(path, json=body, headers=headers))

    def post(self, path: str, body: dict[str, Any], wait_s: int = 0) -> dict[str, Any]:
        headers = {"Prefer": f"wait={wait_s}"} if wait_s else {}
        return self._json(self._http.post(path, json=body, headers=headers))

    def get(self, path: str, **query: str) -> dict[str, Any]:
        return self._json(self._http.get(path, params=query))

    def picture(self, path: str, media_type: str, **query: str) -> bytes:
        response = self._http.get(path, params=query, headers={"Accept": media_type})
        self._expect_success(response)
        sent = response.headers.get("content-type", "").split(";")[0]
        if sent != media_type:
            raise DemoFailed(f"{response.url} answered {sent}, not {media_type}")
        return response.content

    def curl(self, path: str, accept: str | None = None, **query: str) -> str:
        """Return the same GET as a curl command."""
        address = f"{self.url}{path}" + (f"?{urlencode(query, safe=':,')}" if query else "")
        header = f" -H {shlex.quote('Accept: ' + accept)}" if accept else ""
        return f"curl -s{header} {shlex.quote(address)}"

    def close(self) -> None:
        self._http.close()

    def _json(self, response: httpx.Response) -> dict[str, Any]:
        self._expect_success(response)
        answer: dict[str, Any] = response.json()
        return answer

    @staticmethod
    def _expect_success(response: httpx.Response) -> None:
        if not response.is_success:
            request = response.request
            raise DemoFailed(
                f"{request.method} {request.url} answered {response.status_code}: "
                f"{response.text[:800]}"
            )
