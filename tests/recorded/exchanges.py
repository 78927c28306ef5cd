"""One request and its response, in the form that is stored: one line of JSON per exchange."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import numpy as np

FOLDER = Path(__file__).with_name("responses")
HEADERS = ("content-type", "location", "link", "preference-applied", "retry-after", "allow", "etag")
_TEXTS = re.compile(r"<(?:text|title|desc|tspan|h[1-4])\b[^>]*>([^<]+)<")

# Requested of all metrics and temperatures, and therefore not written.
_DETAILS = re.compile(r"[?&]include=details$|%2Cdetails")

Exchange = dict[str, Any]


def exchange_of(response: httpx.Response) -> Exchange:
    """Return an exchange: the request's line and digest, the response's status, headers and body."""
    request = response.request
    line = f"{request.method} {_DETAILS.sub('', request.url.raw_path.decode())}"
    headers = {name: response.headers[name] for name in HEADERS if name in response.headers}
    return {
        "request": line,
        "sent": _digest(request),
        "status": response.status_code,
        "headers": headers,
        "body": _body(response),
    }


def _digest(request: httpx.Request) -> str | None:
    """Return 12 hexadecimal digits of SHA-256 of a text.

    Other versions of libraries, and panes of other versions, write the same content as other bytes.
    """
    media = request.headers.get("content-type", "")
    is_text = media.endswith("json") or media.startswith("text")
    is_packed = (
        "content-encoding" in request.headers
        or request.url.path.endswith("/import")
        or b'"packed"' in request.content
    )
    if not (request.content and is_text) or is_packed:
        return None
    return hashlib.sha256(request.content).hexdigest()[:12]


def _body(response: httpx.Response) -> Any:
    media = response.headers.get("content-type", "").partition(";")[0]
    if media.endswith("ndjson"):
        return _lines(response.text)
    if media.endswith("json"):
        return response.json()
    if media == "text/csv":
        return [[_cell(each) for each in row] for row in csv.reader(io.StringIO(response.text))]
    if media == "application/x-npy":
        array = np.load(io.BytesIO(response.content))
        return {"dtype": str(array.dtype), "shape": list(array.shape), "values": array.tolist()}
    if media in ("image/svg+xml", "text/html"):
        return {"texts": [" ".join(each.split()) for each in _TEXTS.findall(response.text)]}
    return {"magic": response.content[:4].hex()} if response.content else None


def _lines(text: str) -> dict[str, Any]:
    """Return how often each kind of line occurs: panes and records are packed, and are compared by what an import returns."""
    kinds: dict[str, int] = {}
    for line in text.splitlines():
        found = json.loads(line)
        kind = str(found.get("kind") or found.get("line") or sorted(found)[:3])
        kinds[kind] = kinds.get(kind, 0) + 1
    return kinds


def _cell(text: str) -> Any:
    try:
        return json.loads(text) if re.fullmatch(r"-?\d[\d.e+-]*", text) else text
    except ValueError:
        return text


def stored(scenario: str) -> list[Exchange]:
    """Return the recorded exchanges of a scenario, none if it has not been recorded."""
    path = FOLDER / f"{scenario}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def store(scenario: str, exchanges: Iterable[Exchange]) -> None:
    """Replace the recorded exchanges of a scenario."""
    lines = [json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in exchanges]
    (FOLDER / f"{scenario}.jsonl").write_text("".join(f"{line}\n" for line in lines))
