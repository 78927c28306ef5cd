"""The verdict about a model in sentences, and its status."""

from __future__ import annotations

from typing import Any

from calibrant_server.service.pages.numbers import interval, number, per_cent, reason


def shown_status(status: str | None, is_watched: bool) -> str | None:
    """Return the status of a badge: a model without a label horizon has no alarm, which is not a lack of data."""
    return "not_watched" if status == "insufficient_data" and not is_watched else status


def verdict(metrics: dict[str, Any], reliability: dict[str, Any]) -> str:
    """Return how far confidence is from accuracy, with what a calibrated model would show."""
    error = (metrics.get("metrics") or {}).get("ece") or {}
    if error.get("value") is None:
        return f"There is no verdict on calibration yet. {reason(error.get('reason'))}"
    measured = f"expected calibration error {number(error['value'])}"
    if bounds := interval(error.get("interval")):
        measured += f" (95 % interval {bounds})"
    if error.get("null_q95") is None:
        return f"{_direction(reliability)}{measured.capitalize()}. There is no null reference."
    null = (
        f"a calibrated model with these predictions would show {number(error['null_mean'])} on average and "
        f"at most {number(error['null_q95'])} in 19 of 20 cases"
    )
    if error.get("above_null") is None:
        return f"Whether the model is miscalibrated is open: {measured}; {null}."
    if error["above_null"]:
        return f"{_direction(reliability)}{measured[0].upper()}{measured[1:]}; {null}."
    return f"No miscalibration is shown: {measured}; {null}."


def _direction(reliability: dict[str, Any]) -> str:
    """Return whether the model is over- or underconfident on average."""
    confidence, accuracy = reliability.get("mean_confidence"), reliability.get("accuracy")
    if confidence is None or accuracy is None:
        return "The model is miscalibrated. "
    means = f"mean confidence {per_cent(confidence)}, accuracy {per_cent(accuracy)}"
    if reliability.get("scope") != "top_label":
        means = f"mean probability {per_cent(confidence)}, observed frequency {per_cent(accuracy)}"
        return f"The model is miscalibrated: {means}. "
    return f"The model is {'over' if confidence > accuracy else 'under'}confident: {means}. "
