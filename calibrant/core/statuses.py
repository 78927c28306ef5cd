"""Statuses of a model in words and in the order of lists, the same on pages, in reports and at the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNKNOWN = "insufficient_data"
NOT_COMPUTED = "Being computed"  # text of a status before it is known
# The statuses of the API in the order of lists, then those that say why nothing is known.
STATUS_TEXTS = {
    "alarm": "Alarm",
    "watch": "Watch",
    UNKNOWN: "Undecided",
    "ok": "OK",
    "no_data": "No recent data",
    "not_watched": "Not watched",
}
RANKS = {"alarm": 0, "watch": 1, UNKNOWN: 2, "ok": 3}


def shown_status(found: Mapping[str, Any], is_watched: bool = True) -> str | None:
    """Return the status to show: a model without a label horizon has no alarm, which is not a lack of data.

    >>> stopped = {"status": "insufficient_data", "change": {"word": "no_recent_predictions"}}
    >>> shown_status(stopped), shown_status({"status": "insufficient_data"}, is_watched=False)
    ('no_data', 'not_watched')
    """
    status: str | None = found.get("status")
    if status != UNKNOWN:
        return status
    if not is_watched:
        return "not_watched"
    return "no_data" if is_without_data(found) else status


def is_without_data(found: Mapping[str, Any]) -> bool:
    """Return whether predictions or labels have stopped."""
    return str((found.get("change") or {}).get("word")).startswith("no_recent")
