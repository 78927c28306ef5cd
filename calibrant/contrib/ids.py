"""Ids of other systems as ids of predictions and batches."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any


def content_id(prefix: str, content: Any) -> str:
    """Return an id that equal content always gets, so that a repeated batch counts once.

    Parameters
    ----------
    prefix : beginning of the id
    content : plain values
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"{prefix}.{blake2b(text.encode(), digest_size=16).hexdigest()}"
