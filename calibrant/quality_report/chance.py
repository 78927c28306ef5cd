"""What chance alone would show: a perfectly calibrated model with the same predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrant.figures.numbers import MISSING, plain_number, plain_numbers
from calibrant.figures.reasons import REASONS
from calibrant.metrics import METRICS, slug_of, title_of
from calibrant.quality_report.contents import ReportContents

ABOVE = {True: "above", False: "not above", None: "too close to decide"}


def against_null(each: Mapping[str, Any], contents: ReportContents) -> list[str]:
    """Return what a calibrated model would show, and whether the measured error is more."""
    if each.get("null_mean") is None:
        text = "What a perfectly calibrated model with these predictions would show is not known"
        reason = each.get("null_reason")
        return [f"{text}: {REASONS[reason]}." if reason in REASONS else f"{text}."]
    mean, q95 = plain_numbers([each["null_mean"], each["null_q95"]])
    usual = (
        "By chance alone, a perfectly calibrated model with the same predictions would show "
        f"{mean} on average, and at most {q95} in 95 % of samples."
    )
    above = each.get("above_null")
    if above is None:
        return [usual, "The measured error is too close to that limit to decide."]
    if above and (reached := reach_of_chance(each)) is not None:
        return [
            usual,
            f"The measured error is larger. If all {contents.row}s of a {contents.unit} were fully dependent, as in the figure of "
            f"reliability, chance could reach {plain_number(reached)}.",
        ]
    return [
        usual,
        "The measured error is larger: chance alone does not explain it."
        if above
        else "The measured error is no larger: chance alone may explain it. This does not prove that the model is calibrated.",
    ]


def reach_of_chance(each: Mapping[str, Any]) -> float | None:
    """Return the limit with fully dependent units, if the value is below it and the measured dependence is not to be relied on."""
    worst = each.get("null_worst_case")
    if each.get("null_promised") is not False or worst is None or each["value"] >= worst["q95"]:
        return None
    return float(worst["q95"])


def result_title(key: str, each: Mapping[str, Any]) -> str:
    """Return the title of a result, with the threshold of a net benefit also where it is the default one.

    >>> result_title("net_benefit", {"threshold": 0.5}), result_title("ece", {})
    ('Net benefit (threshold=0.5)', 'Expected calibration error')
    """
    if key == "net_benefit" and "threshold" in each:
        return f"{title_of(key)} (threshold={each['threshold']:g})"
    return title_of(key)


def null_texts(key: str, each: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return mean and limit of a perfectly calibrated model, and whether the value is above the limit.

    A limit from above is no test of a metric that is better the larger it is: only the mean is returned.

    Examples
    --------
    >>> null_texts("ece", {"null_mean": 0.00442, "null_q95": 0.00601, "above_null": True})
    ('0.0044', '0.0060', 'above')
    >>> null_texts("accuracy", {"null_mean": 0.745, "null_q95": 0.765, "above_null": False})
    ('0.745', '–', '–')
    """
    metric = METRICS.get(slug_of(key))
    if each.get("null_mean") is None:
        return MISSING, MISSING, MISSING
    mean, limit = plain_numbers([each["null_mean"], each.get("null_q95")])
    if metric is not None and metric.direction == "higher":
        return mean, MISSING, MISSING
    return mean, limit, ABOVE[each.get("above_null")]
