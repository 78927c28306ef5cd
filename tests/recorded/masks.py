"""Values of responses that differ between two recordings of one version, with the reason of each."""

from __future__ import annotations

import re
from typing import Any

MASK = "***"

# Name of the field, or header, wherever it occurs: the reason.
FIELDS = {
    "state_version": "contains the model's generation, which the server draws",
    "etag": "digest of the state version",
    "digest": "of fitted numbers, whose last bit may differ from machine to machine",
    "bytes": "size of a packed pane or record: a number with another last bit is compressed to another size",
    "sha256": "digest of a report, which contains the state version",
    "results_sha256": "digest of the results, which contain the state version",
    "stored_bytes": "compressed size of the same report",
    "request_id": "drawn for every request",
    "iterations": "an iteration ends one step earlier or later if the last bit of a sum differs",
}
# Text anywhere in a response: the reason.
TEXTS = {
    re.compile(r"\b\d{13}-\d+\b"): "id of an entry that the store makes from its own clock",
    re.compile(r"\bb\.[0-9a-f]{32}\b"): "batch id that the server draws for a batch without one",
    re.compile(
        r"\b(al_\d{3}|ev)_[0-9a-f]{20}\b"
    ): "made of the model's generation, which the server draws",
}


def masked(value: Any) -> Any:
    """Return a JSON value with the masked fields replaced; that they are present is still recorded."""
    if isinstance(value, dict):
        return {
            name: MASK if name in FIELDS and each is not None else masked(each)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [masked(each) for each in value]
    return _masked_text(value) if isinstance(value, str) else value


def _masked_text(text: str) -> str:
    for pattern in TEXTS:
        text = pattern.sub(MASK, text)
    return text
