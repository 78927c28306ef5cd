"""Decision thresholds in sentences: of the predictions that are acted on, how many had the outcome, and how many were predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calibrant.figures.numbers import percent
from calibrant.inference.bin_gaps import widest_gap
from calibrant.metrics import slug_of
from calibrant.quality_report.contents import ReportContents


def flagged_sentences(contents: ReportContents) -> list[str]:
    """Return a sentence for each decision threshold whose net benefit the report has."""
    return [
        flagged_sentence(each, contents.score)
        for key, each in contents.estimates.items()
        if slug_of(key) == "net_benefit" and each.get("value") is not None
    ]


def exceptions_of(contents: ReportContents) -> list[str]:
    """Return where an error that is within the tolerance on average is certain to exceed it: at a threshold, or in a range of scores."""
    tolerance, found = contents.tolerance or 0.0, []
    each = _misleading_threshold(contents, tolerance)
    if each is not None:
        found.append(f"Not of the flagged predictions. {flagged_sentence(each, contents.score)}")
    gap = gap_sentence((contents.reliability or {}).get("table") or (), tolerance)
    return [*found, f"Not in every range of scores. {gap}"] if gap else found


def gap_sentence(rows: Sequence[Mapping[str, Any]], tolerance: float) -> str:
    """Return what the bin shows whose gap is certain to exceed the tolerance; empty if there is none.

    >>> high = {"mean_confidence": 0.97, "accuracy": 0.77, "n_effective": 100.0, "weight": 1.0}
    >>> gap_sentence([high], 0.05)
    'Where the model says 97 %, the labels show 77 % (100 % of the predictions).'
    """
    row = widest_gap(rows, tolerance)
    if row is None:
        return ""
    says, show, share = (
        percent(each)
        for each in (
            row["mean_confidence"],
            row["accuracy"],
            row["weight"] / sum(each["weight"] for each in rows),
        )
    )
    return f"Where the model says {says}, the labels show {show} ({share} of the predictions)."


def _misleading_threshold(contents: ReportContents, tolerance: float) -> Mapping[str, Any] | None:
    """Return the first decision threshold at which predicted and observed share differ beyond tolerance and chance; else None."""
    n_units = contents.count("n_units") or 0
    for key, each in contents.estimates.items():
        if slug_of(key) != "net_benefit" or each.get("observed") is None:
            continue
        observed, n = each["observed"], each["acted_on"] * n_units
        chance = 2.0 * (observed * (1.0 - observed) / n) ** 0.5 if n else 1.0
        if abs(each["predicted"] - observed) > tolerance + chance:
            return each
    return None


def flagged_sentence(each: Mapping[str, Any], score: str | None = None) -> str:
    """Return what became of the predictions at or above a decision threshold.

    Parameters
    ----------
    each : result of `net_benefit`
    score : what the score is, as `ReportContents.score`

    >>> flagged_sentence({"threshold": 0.2, "scope": "positive", "acted_on": 0.3, "observed": 0.14, "predicted": 0.2})
    'Threshold 0.2: 30 % of the predictions were flagged. Of 100 flagged, 14 had the outcome; the model predicted 20.'
    >>> flagged_sentence({"threshold": 0.2, "scope": "top_label", "acted_on": 1.0, "observed": 0.7, "predicted": 0.7})
    'Threshold 0.2: all predictions were flagged, since no highest probability is lower. Evaluate the class on which you act instead.'
    """
    start = f"Threshold {each['threshold']:g}"
    if each["observed"] is None:
        return f"{start}: no prediction was flagged."
    if each["scope"] == "top_label" and each["acted_on"] == 1.0:
        return (
            f"{start}: all predictions were flagged, since no highest probability is lower. "
            "Evaluate the class on which you act instead."
        )
    shares = [each["observed"], each["predicted"]]
    n = _group(shares)
    observed, predicted = (f"{n * share:.0f}" for share in shares)
    return (
        f"{start}: {percent(each['acted_on'])} of the predictions were flagged. Of {n:,} flagged, {observed} {_outcome(each, score)}; "
        f"the model predicted {predicted}."
    )


def _outcome(each: Mapping[str, Any], score: str | None) -> str:
    """Return what is observed of the flagged predictions.

    >>> _outcome({"scope": "class:1"}, "probability of malignant"), _outcome({"scope": "positive"}, "probability of class 1")
    ('were malignant', 'had the outcome')
    """
    if each["scope"] == "top_label":
        return "were correct"
    name = (score or "").removeprefix("probability of ")
    return "had the outcome" if name in ("", "class 1") else f"were {name}"


def _group(shares: Sequence[float]) -> int:
    """Return 100, or 1,000 for shares that would be rounded to none or all.

    >>> _group([0.892, 0.963]), _group([0.004, 0.2]), _group([0.0, 0.2])
    (100, 1000, 100)
    """
    return 1000 if any(0 < share < 0.02 or 0.98 < share < 1 for share in shares) else 100
