"""Ids of other systems as ids of predictions and batches."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

from calibrant.input.names import IDENTIFIER


def fitted(name: str) -> str:
    """Return a name, or `h.` and 32 digits of its BLAKE2b hash if it does not fit the rule for ids.

    >>> fitted("chatcmpl-8f3"), fitted("req/7")
    ('chatcmpl-8f3', 'h.3a362af6e3dd025ec625da4f5b87f05f')
    """
    if IDENTIFIER.fullmatch(name):
        return name
    return f"h.{blake2b(name.encode(), digest_size=16).hexdigest()}"


def content_id(prefix: str, content: Any) -> str:
    """Return an id that equal content always gets, so that a repeated batch counts once.

    Parameters
    ----------
    prefix : beginning of the id
    content : plain values
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"{prefix}.{blake2b(text.encode(), digest_size=16).hexdigest()}"
