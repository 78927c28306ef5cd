"""Decision thresholds in sentences: of the predictions that are acted on, how many had the outcome, and how many were predicted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrant.figures.numbers import percent
from calibrant.metrics import slug_of
from calibrant.quality_report.contents import ReportContents


def flagged_sentences(contents: ReportContents) -> list[str]:
    """Return a sentence for each decision threshold whose net benefit the report has."""
    return [
        flagged_sentence(each)
        for key, each in contents.estimates.items()
        if slug_of(key) == "net_benefit" and each.get("value") is not None
    ]


def flagged_sentence(each: Mapping[str, Any]) -> str:
    """Return what became of the predictions at or above a decision threshold.

    >>> flagged_sentence({"threshold": 0.2, "scope": "positive", "acted_on": 0.3, "observed": 0.14, "predicted": 0.2})
    'Threshold 0.2: 30 % of the predictions were flagged. Of 100 flagged, 14 had the outcome; 20 were predicted.'
    """
    start = f"Threshold {each['threshold']:g}"
    if each["observed"] is None:
        return f"{start}: no prediction was flagged."
    outcome = "were correct" if each["scope"] == "top_label" else "had the outcome"
    observed, predicted = (_of_100(each[name]) for name in ("observed", "predicted"))
    return (
        f"{start}: {percent(each['acted_on'])} of the predictions were flagged. Of 100 flagged, {observed} {outcome}; "
        f"{predicted} were predicted."
    )


def _of_100(share: float) -> str:
    """Return a share as a number of 100, with a decimal below 10 and above 90."""
    return f"{100.0 * share:.0f}" if 0.1 <= share <= 0.9 else f"{100.0 * share:.1f}"
