"""Examples of the API document: of request bodies by the name of their model, of responses by operationId.

Requests can be sent one after the other as they are; histograms of four bins are for a model that declares a grid of four. Responses
were recorded from a running service and shortened: lists to two entries, objects to a few members. Tests check that all are valid.
"""

import json
from pathlib import Path
from typing import Any


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    return found


EXAMPLES = _read("request_examples.json")
_TEXTS: dict[str, tuple[str, str]] = {
    "getServiceMetrics": (
        "text/plain",
        '# TYPE calibrant_requests_total counter\ncalibrant_requests_total{operation="getLive",status="200"} 1.0\n',
    ),
    "getModelSeries": (
        "text/plain",
        '# TYPE calibrant_model_temperature gauge\ncalibrant_model_temperature{model="triage",tenant="default"} 1.31\n',
    ),
    "getReport": (
        "text/html",
        "<!doctype html><title>Calibration of triage</title><h2>1. Data</h2>…",
    ),
    "streamAlarms": (
        "text/event-stream",
        'retry: 3000\n\nid: 0.0.1.0\nevent: alarm\ndata: {"id": "al_003_0f1e2d3c4b5a69788796", "state": "open"}\n\n',
    ),
}
RESPONSE_EXAMPLES: dict[str, tuple[str, Any]] = {
    name: ("application/json", value) for name, value in _read("response_examples.json").items()
} | _TEXTS
