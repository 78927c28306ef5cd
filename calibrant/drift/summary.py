"""A verdict in sentences: what happened, its size, and its evidence, for readers without the tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STATUSES = {
    "insufficient_data": "Too few outcomes are known for a verdict.",
    "ok": "The labels show no disagreement of predictions and outcomes.",
    "watch": "The labels show no disagreement of predictions and outcomes, but the scores of the model have shifted.",
    "alarm": "Predictions no longer agree with outcomes.",
}
DOUBTFUL = "The labels may disagree with the predictions, but an assumption of the evidence is in doubt, so that no alarm is raised."
ACKNOWLEDGED = "An alarm was acknowledged; cohorts after it are being watched."


def summary(verdict: Mapping[str, Any]) -> str:
    """Return sentences from the result of `verdict.verdict`.

    Examples
    --------
    >>> summary({"status": "ok", "n_units": 1200.0, "sr": 2.5, "threshold": 3650.0})
    'The labels show no disagreement of predictions and outcomes. The change statistic is 2.5 over 1,200 labelled units; \
the alarm is raised at 3,650.'
    """
    is_acknowledged = verdict["status"] == "alarm" and verdict.get("acknowledged_at") is not None
    reported = [ACKNOWLEDGED if is_acknowledged else STATUSES[verdict["status"]]]
    warnings = verdict.get("warnings") or []
    if verdict["status"] == "watch" and warnings:
        reported = [DOUBTFUL, *(f"{each['detail'].capitalize()}." for each in warnings)]
    if verdict["status"] == "insufficient_data" and verdict.get("reason"):
        reported.append(f"The reason: {verdict['reason']}.")
    if verdict["status"] == "alarm":
        reported += _effect(verdict.get("effect") or {}) + _worst(verdict.get("effect") or {})
    if verdict.get("sr") is not None:
        reported.append(
            f"The change statistic is {_statistic(verdict['sr'])} over {verdict['n_units']:,.0f} labelled units; "
            f"the alarm is raised at {verdict['threshold']:,.0f}."
        )
    return " ".join(reported)


def _statistic(value: float) -> str:
    """Write a change statistic without an exponent: it grows without a bound after a change.

    Examples
    --------
    >>> _statistic(2.5), _statistic(561957.4), _statistic(2.5e97)
    ('2.5', '561,957', 'above 1,000,000')
    """
    if value >= 1e6:
        return "above 1,000,000"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _effect(effect: Mapping[str, Any]) -> list[str]:
    reported = []
    ratio, slope = effect.get("observed_over_expected"), effect.get("slope")
    if ratio and not _holds(ratio["interval"], 1.0):
        often = "more" if ratio["value"] > 1.0 else "less"
        reported.append(
            f"Outcomes are {often} frequent than predicted: {ratio['value']:.2f} times."
        )
    if slope and not _holds(slope["interval"], 1.0):
        how = "too extreme" if slope["value"] < 1.0 else "not extreme enough"
        reported.append(
            f"Predictions are {how}: slope {slope['value']:.2f}; a calibrated model has 1."
        )
    return reported


def _worst(effect: Mapping[str, Any]) -> list[str]:
    rows = [row for row in effect.get("worst_bins") or () if row["standard_errors"] > 2.0]
    if not rows:
        return []
    row = rows[0]
    side = "above" if row["gap"] > 0 else "below"
    return [
        f"Between {100 * row['lower']:.0f} % and {100 * row['upper']:.0f} %, outcomes are {abs(row['gap']) * 100:.0f} percentage points {side} "
        "the prediction."
    ]


def _holds(interval: list[float], value: float) -> bool:
    return interval[0] <= value <= interval[1]
