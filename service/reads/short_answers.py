"""What metrics, temperatures and lists of models return unless `include=details` is requested: what a decision needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson

from calibrant.results.queries import DETAILS, parts_of

_REASONS = ("reason", "detail", "interval_reason", "null_reason", "difference_reason")
# What every estimate has; null where there is none.
ALWAYS = ("value", "interval", "null_mean", "null_q95", "above_null", "n", "reason")
ESTIMATE = frozenset({
    *ALWAYS, *_REASONS, "p_value", "corrected", "bias", "range", "range_caution", "tolerance_verdict",
    "against", "difference", "difference_interval",
})  # fmt: skip
METRICS = frozenset({
    "model", "window", "slice", "state_version", "n_predictions", "n_labelled", "n_ratings", "n_units", "raters", "scope",
    "metrics", "label_coverage", "tolerance", "detectable", "against", "clock", "sealed_to", "matured",
    "every_s", "series", "events", "by", "slices", "warnings",
})  # fmt: skip
COVERAGE = frozenset({"coverage", "n_predictions", "n_labelled"})
Short = Callable[[dict[str, Any]], dict[str, Any]]


def wants_details(include: str | None) -> bool:
    """Return whether `details` is among the included parts."""
    return DETAILS in parts_of(include)


def without_details(include: str | None) -> str | None:
    """Return the other included parts, which a worker computes."""
    return ",".join(each for each in parts_of(include) if each != DETAILS) or None


def rendered_short(short: Short) -> Callable[[bytes], Awaitable[bytes]]:
    """Return what makes the short answer from a complete one."""

    async def render(body: bytes) -> bytes:
        return orjson.dumps(short(orjson.loads(body)))

    return render


def short_metrics(found: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics of a window, and of each of its parts and slices, without details."""
    answer = only(METRICS, found)
    if answer.get("metrics"):
        answer["metrics"] = {key: short_estimate(each) for key, each in answer["metrics"].items()}
    if answer.get("label_coverage"):
        answer["label_coverage"] = only(COVERAGE, answer["label_coverage"])
    if answer.get("series"):
        answer["series"] = [short_metrics(each) for each in answer["series"]]
    if answer.get("slices"):
        answer["slices"] = {key: short_metrics(each) for key, each in answer["slices"].items()}
    return answer


def short_estimate(found: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return an estimate without details."""
    return None if found is None else dict.fromkeys(ALWAYS) | only(ESTIMATE, found)


def only(names: frozenset[str], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the named fields."""
    return {key: value for key, value in found.items() if key in names}
