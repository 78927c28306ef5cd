"""Whether an answer stands in the API document: its status, its media type, the shape of its JSON.

Clients of the door's tests and of the whole's ask for every answer that they get, so that no test is needed that repeats
their requests.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import httpx

from calibrant_server.service.app import create_app
from calibrant_server.service.openapi.schema import _documented
from calibrant_server.service.settings import Settings

BODILESS = {204, 304}


class Conforming:
    """The operations of the document, found by method and path; it takes a second and is made for the first answer."""

    @cached_property
    def document(self) -> dict[str, Any]:
        """The document of an app with default settings; no setting changes it."""
        return create_app(Settings()).openapi()

    @cached_property
    def _paths(self) -> list[tuple[re.Pattern[str], dict[str, Any]]]:
        paths: dict[str, dict[str, Any]] = self.document["paths"]
        # More of a path that is fixed comes first: /maps/current before /maps/{version}.
        ordered = sorted(paths, key=lambda path: path.count("{"))
        return [(re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), paths[path]) for path in ordered]

    def operation(self, request: httpx.Request) -> dict[str, Any] | None:
        """The operation that a request asks for, none where the document has none."""
        method = request.method.lower().replace("head", "get")
        for pattern, operations in self._paths:
            if pattern.fullmatch(request.url.path):
                return operations.get(method)
        return None

    def check(self, response: httpx.Response, shapes: bool = True) -> None:
        """Fail unless the document foresees the answer; a streamed one is not read."""
        operation = self.operation(response.request)
        if operation is None:
            return
        said = f"{operation['operationId']} answers {response.status_code}"
        assert str(response.status_code) in operation["responses"], said
        if response.status_code in BODILESS:
            return
        described = operation["responses"][str(response.status_code)]
        content = resolved(self.document, described)["content"]
        media = response.headers["content-type"].partition(";")[0]
        assert media in content, f"{said} as {media}"
        name = content[media]["schema"].get("$ref", "").rpartition("/")[2]
        if name and response.request.method != "HEAD" and (shapes or response.status_code >= 400):
            _documented[name].model_validate_json(response.content, strict=True)


CONFORMING = Conforming()


def resolved(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """Return the target of a reference into the document; any other node unchanged."""
    while (reference := node.get("$ref", "")).startswith("#/"):
        found: Any = document
        for part in reference[2:].split("/"):
            found = found[part]
        node = found
    return node
