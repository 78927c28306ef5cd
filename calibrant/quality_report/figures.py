"""Figures of a report: reliability, errors with their null reference, the loss over temperature."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibrant.figures.base import MIN_JOINED
from calibrant.figures.decision_curve import draw_decision_curve
from calibrant.figures.estimates import draw_estimates
from calibrant.figures.images import image
from calibrant.figures.losses import draw_losses
from calibrant.figures.map_effect import draw_map_effect
from calibrant.figures.numbers import above_interval_note, percent, plain_number
from calibrant.figures.over_time import draw_over_time, over_time_caption
from calibrant.figures.reliability import draw_class_reliability, draw_reliability, filled_rows
from calibrant.metrics import is_error, slug_of, title_of
from calibrant.quality_report.contents import ReportContents
from calibrant.quality_report.verdicts import errors_of, main_metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure


RELIABILITY, OVER_TIME = "Reliability", "Over time"


@dataclass(frozen=True)
class ReportFigure:
    """A figure with its texts.

    Attributes
    ----------
    title, caption : shown with it; together its text alternative
    source : the figure as SVG, in a URL that needs nothing from elsewhere
    """

    title: str
    caption: str
    source: str

    @property
    def is_first(self) -> bool:
        """Whether it is on the first page, below the verdict."""
        return self.title in (RELIABILITY, OVER_TIME)


def figures(contents: ReportContents) -> list[ReportFigure]:
    """Return the figures for which there are data."""
    found = []
    if contents.reliability is not None and filled_rows(dict(contents.reliability)):
        found.append(_reliability(contents, contents.reliability))
    if sum(bool(row["metrics"]) for row in (contents.series or {}).get("series", ())) > 1:
        found.append(_over_time(contents.series or {}))
    errors = [key for key in contents.estimates if is_error(slug_of(key))]
    if any(contents.estimates[key].get("value") is not None for key in errors):
        found.append(_errors(contents))
    if contents.map_effect is not None:
        found.append(_map_effect(contents.map_effect))
    fitted = contents.temperature
    if fitted is not None and fitted.get("curve") and fitted.get("temperature") is not None:
        found.append(_temperature(fitted))
    if contents.decision_curve is not None and contents.decision_curve["net_benefit"]:
        found.append(_decisions({**contents.decision_curve, "classes": list(contents.classes)}))
    if contents.class_reliability:
        caption = (
            f"Each class against the rest. Blue bars: {percent(contents.ci)} interval of each bin."
        )
        drawn = draw_class_reliability(contents.class_reliability)
        found.append(_figure("Reliability of each class", [caption], drawn))
    return found


def _map_effect(effect: Mapping[str, Any]) -> ReportFigure:
    caption = [
        "The labels so far of predictions since the promotion: as the model sent them, and after the map. It was not fitted to them."
    ]
    return _figure("Before and after the map", caption, draw_map_effect(effect))


def _decisions(curve: Mapping[str, Any]) -> ReportFigure:
    acting, benefit = (
        "Net benefit of acting from a threshold on",
        "in true positives per prediction",
    )
    if curve.get("scope") == "top_label":
        acting, benefit = "Net benefit of relying on the top class from a threshold on", "in correct predictions per prediction"  # fmt: skip
    caption = [
        f"{acting}, {benefit}. Acting on the model is of use where its curve is above both others."
    ]
    if any(curve["interval"]):
        caption.append(f"Shaded: the {percent(curve['ci'])} interval of each threshold alone.")
    return _figure("Decision curve", caption, draw_decision_curve(dict(curve)))


def _figure(title: str, caption: list[str], drawn: Figure) -> ReportFigure:
    source = f"data:image/svg+xml;base64,{b64encode(image(drawn)).decode()}"
    return ReportFigure(title, " ".join(caption), source)


def _reliability(contents: ReportContents, table: Mapping[str, Any]) -> ReportFigure:
    key = main_metric(contents.estimates)
    each = contents.estimates[key] if key else {}
    caption = ["On the dashed line both agree. Orange columns: share of the data."]
    shown = {**table, "error": each if key and slug_of(key) == "ece" else None}
    # Where units are too few for the metric, those of a single bin are too.
    if each and not any(each.get(name) is not None for name in ("interval", "null_mean")):
        shown["table"] = [_without_uncertainty(row) for row in table["table"]]
        caption.append(
            "No intervals and no range of calibrated models are drawn: there are too few independent units."
        )
    else:
        caption.append(
            f"Blue bars: {percent(contents.ci)} interval of each bin. Grey: where 95 % of calibrated models would be, bin by bin."
        )
    if any(row["weight"] and row["n_effective"] < MIN_JOINED for row in table["table"]):
        caption.append(
            f"Hollow points are worth fewer than {MIN_JOINED:.0f} independent {contents.unit}s, because rows of one {contents.unit} resemble "
            "each other; no line joins them."
        )
    if key and each.get("value") is not None:
        caption.append(_value(key, each))
    return _figure(
        RELIABILITY, caption, draw_reliability(shown, classes=list(contents.classes) or None)
    )


def _over_time(series: Mapping[str, Any]) -> ReportFigure:
    shown = dict(series)
    return _figure(OVER_TIME, [over_time_caption(shown)], draw_over_time(shown))


def _value(key: str, each: Mapping[str, Any]) -> str:
    text = f"{title_of(key)}: {plain_number(each['value'])}"
    if each.get("null_q95") is not None:
        text += (
            f" (a calibrated model: at most {plain_number(each['null_q95'])} in 95 % of samples)"
        )
    return f"{text}."


def _without_uncertainty(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("interval", "n_effective")}


def _errors(contents: ReportContents) -> ReportFigure:
    drawn = draw_estimates(dict(contents.metrics), only_errors=True, tolerance=contents.tolerance)
    caption = [
        "Points: calibration errors. Lines: their intervals, where there are some. Orange: from the mean to the 95 % quantile "
        "of a perfectly calibrated model with the same predictions. A point inside or left of the orange range is no evidence "
        "of miscalibration."
    ]
    if note := above_interval_note(errors_of(contents.estimates)):
        caption.append(note)
    if contents.tolerance is not None:
        caption.append(f"Dotted: the tolerance, {contents.tolerance:g}.")
    return _figure("Calibration errors", caption, drawn)


def _temperature(fitted: Mapping[str, Any]) -> ReportFigure:
    caption = [
        "Loss over the temperature that divides the logits. The minimum is the fitted temperature; "
        "above 1, the model is overconfident; below 1, it is underconfident."
    ]
    if fitted.get("interval"):
        caption.append("Shaded: its interval.")
    drawn = draw_losses(dict(fitted), only=fitted.get("objective") or "nll")
    return _figure("Temperature", caption, drawn)
