"""Values of a result as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrant.metrics.estimate import number

MISSING = "–"


def counted(about: Mapping[str, Any]) -> str:
    """Return the counts of the data as text."""
    n = about.get("n_labelled", about.get("n")) or 0
    return f"{n:,} labelled predictions, {about['n_ratings']:,} ratings, {about['n_units']:,} units"


def cell(value: float | None) -> str:
    """Return a number of a table as text."""
    return MISSING if value is None else number(value)


def bounds_text(interval: Any) -> str:
    """Return an interval as text."""
    return MISSING if interval is None else f"[{number(interval[0])}, {number(interval[1])}]"
