"""Examples of responses, by operationId.

Those in `response_examples.json` were recorded from a running service and shortened: lists to two entries,
objects to a few members. Each fits the schema of its response, which a test checks.
"""

import json
from pathlib import Path
from typing import Any

_RECORDED = Path(__file__).with_name("response_examples.json")
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
    name: ("application/json", value)
    for name, value in json.loads(_RECORDED.read_text(encoding="utf-8")).items()
} | _TEXTS
