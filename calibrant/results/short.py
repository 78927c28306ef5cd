"""Short responses, without `include=details`: what a decision needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_REASONS = ("reason", "detail", "interval_reason", "null_reason", "difference_reason")
# What every estimate has; null where there is none.
ALWAYS = ("value", "interval", "null_mean", "null_q95", "above_null", "n", "reason")
ESTIMATE = frozenset({
    *ALWAYS, *_REASONS, "p_value", "corrected", "bias", "range", "range_caution", "tolerance_verdict",
    "against", "difference", "difference_interval",
})  # fmt: skip


def short_estimate(found: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return an estimate without details."""
    return None if found is None else dict.fromkeys(ALWAYS) | only(ESTIMATE, found)


def only(names: frozenset[str], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the named fields."""
    return {key: value for key, value in found.items() if key in names}
