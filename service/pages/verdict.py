"""The verdict about a model in sentences, and its status."""

from __future__ import annotations

from calibrant.core.documents import Result, Row
from calibrant_server.service.pages.numbers import day, interval, number, per_cent, reason


def shown_status(status: str | None, is_watched: bool) -> str | None:
    """Return the status of a badge: a model without a label horizon has no alarm, which is not a lack of data."""
    return "not_watched" if status == "insufficient_data" and not is_watched else status


def verdict(metrics: Result, reliability: Result) -> str:
    """Return how far confidence is from accuracy, with what a calibrated model would show."""
    error = (metrics.get("metrics") or {}).get("ece") or {}
    if error.get("value") is None:
        return f"There is no verdict on calibration yet. {reason(error.get('reason'))}"
    measured = f"expected calibration error {number(error['value'])}"
    if bounds := interval(error.get("interval")):
        measured += f" (95 % interval {bounds})"
    if error.get("null_q95") is None:
        return f"Whether the model is miscalibrated is open: {measured}; without a null reference, chance may explain it."
    null = (
        f"a calibrated model with these predictions would show {number(error['null_mean'])} on average and "
        f"at most {number(error['null_q95'])} in 19 of 20 cases"
    )
    if error.get("above_null") is None:
        return f"Whether the model is miscalibrated is open: {measured}; {null}."
    if error["above_null"]:
        return f"{_direction(reliability)}{measured[0].upper()}{measured[1:]}; {null}."
    return f"No miscalibration is shown: {measured}; {null}."


def before_map(version: int | None, drift: Result) -> str:
    """Return that the numbers are of the scores as sent, if a map is applied to them."""
    if version is None:
        return ""
    text = f"These numbers and figures describe the scores as the model sent them, before map version {version} is applied."
    return text + (" The words use the scores after it." if _is_mapped(drift) else "")


def restart(drift: Result, promotions: list[Row]) -> str:
    """Return why the evidence is shorter than the curve: a map was promoted; nothing if the alarm follows none."""
    version = drift.get("map_version")
    if version is None or not _is_mapped(drift):
        return ""
    times = [each["promoted_at"] for each in promotions if str(each["version"]) == str(version)]
    when = f" on {day(times[-1])}" if times else ""
    return (
        f"The evidence restarted when map version {version} was promoted{when}: "
        "cohorts evaluated before that stay in the curve and no longer count."
    )


def _is_mapped(drift: Result) -> bool:
    return bool((drift.get("detector") or {}).get("scores", "mapped") == "mapped")


def _direction(reliability: Result) -> str:
    """Return whether the model is over- or underconfident on average."""
    confidence, accuracy = reliability.get("mean_confidence"), reliability.get("accuracy")
    if confidence is None or accuracy is None:
        return "The model is miscalibrated. "
    means = f"mean confidence {per_cent(confidence)}, accuracy {per_cent(accuracy)}"
    if reliability.get("scope") != "top_label":
        means = f"mean probability {per_cent(confidence)}, observed frequency {per_cent(accuracy)}"
        return f"{_tendency(reliability)}: {means}. "
    return f"The model is {'over' if confidence > accuracy else 'under'}confident: {means}. "


def _tendency(reliability: Result) -> str:
    """Return which way the probabilities of one class err: too high or low, or too near 0 and 1 or too near one half."""
    rows = [row for row in reliability.get("table") or [] if row.get("gap") is not None]
    gaps = [row["weight"] * row["gap"] for row in rows]
    outward = sum(
        gap if row["mean_confidence"] > 0.5 else -gap for row, gap in zip(rows, gaps, strict=True)
    )
    upward = sum(gaps)
    if abs(outward) > 2.0 * abs(upward):
        where = "extreme" if outward < 0 else "near one half"
        return f"The model is miscalibrated, its probabilities are too {where}"
    if upward:
        return f"The model is miscalibrated, its probabilities are too {'low' if upward > 0 else 'high'}"
    return "The model is miscalibrated"
