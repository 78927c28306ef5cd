"""Assumptions behind the results, and how far each holds for the data of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrant.core.label_policies import POLICY_TEXTS
from calibrant.figures.numbers import MISSING, counted, interval_text, percent, plain_number
from calibrant.quality_report.chance import result_title
from calibrant.quality_report.contents import ReportContents

FEW_UNITS = 40


def assumptions(contents: ReportContents) -> list[tuple[str, str]]:
    """Return each assumption with how far it holds."""
    found = [
        ("The units are independent of each other.", _units(contents)),
        ("The labels are correct and complete enough.", _labels(contents)),
        ("The readers are combined as declared.", _raters(contents)),
        ("The intervals contain the true value as often as stated.", _intervals(contents)),
        (
            "The results hold for later data.",
            "Not tested here. They describe these data. Another scanner, site, population or version needs its own evaluation.",
        ),
    ]
    error_bound = max(
        (each.get("error_bound") or 0.0 for each in contents.estimates.values()), default=0.0
    )
    if error_bound:
        found.insert(
            4,
            (
                "Scores are stored precisely enough.",
                "Scores are stored in fine cells. The largest possible error of a value because of this is "
                f"{plain_number(error_bound)}.",
            ),
        )
    return found


def unit_count(contents: ReportContents) -> str:
    """Return the number of units, and what it counts where one can be in several parts of the data.

    >>> several = {"n_units": 7777, "n_units_split": 2208, "n_units_split_estimated": True, "unit_source": "named"}
    >>> unit_count(ReportContents("", several, unit="patient", drift={}))
    '7,777: a patient counts once in each time slice; about 2,208 patients are in several'
    """
    n, split = contents.count("n_units"), contents.count("n_units_split")
    if n is None or not split:
        return MISSING if n is None else f"{n:,}"
    about = "about " if contents.metrics.get("n_units_split_estimated") else ""
    one, part = contents.unit, "part of the data" if contents.drift is None else "time slice"
    return f"{n:,}: a {one} counts once in each {part}; {about}{counted(split, one)} are in several"


def _units(contents: ReportContents) -> str:
    n, one = contents.count("n_units"), contents.unit
    if contents.metrics.get("unit_source") != "named":
        return (
            "No unit such as the patient was named, so each prediction counts as independent. If several predictions belong "
            "to one patient, the intervals are too narrow, and what chance alone would show is too low."
        )
    text = f"Predictions of one {one} are treated as dependent. Number of {one}s: {unit_count(contents)}."
    if contents.count("n_units_split"):
        text += " Where the scores or labels of these resemble each other, the intervals may be too narrow."
    if n is not None and n < FEW_UNITS:
        text += f" Below {FEW_UNITS} {one}s, intervals are less reliable or absent."
    return text


def _labels(contents: ReportContents) -> str:
    n, labelled = contents.count("n_predictions"), contents.count("n_labelled")
    if not n or labelled is None:
        return "The number of predictions without a label is not known."
    text = f"{percent(labelled / n)} of the predictions have a label."
    if labelled < n:
        text += " If labels were obtained selectively, the results do not hold for the others."
    gradient = (contents.metrics.get("label_coverage") or {}).get("gradient")
    if isinstance(gradient, Mapping) and gradient.get("value") is not None and labelled < n:
        text += _gradient(gradient)
    return text


def _gradient(gradient: Mapping[str, Any]) -> str:
    bounds = gradient.get("interval")
    value = plain_number(gradient["value"])
    clear = bounds is not None and (bounds[0] > 0 or bounds[1] < 0)
    between = f" ({interval_text(bounds)})" if bounds is not None else ""
    return f" Over the range of the score, the labelled share changes by {value}{between}" + (
        ": labelling depends on the score." if clear else "."
    )


def _raters(contents: ReportContents) -> str:
    policy = str(contents.metrics.get("raters") or "pooled")
    text = f"Label policy {policy}: {POLICY_TEXTS.get(policy, 'as declared')}."
    if contents.rater_disagreement is not None:
        text += f" Two readers of the same prediction differ in {percent(contents.rater_disagreement)} of pairs."
    ratings, labelled = contents.count("n_ratings"), contents.count("n_labelled")
    if ratings and ratings == labelled:
        text += " Each prediction has one rating, so errors of the readers cannot be distinguished from errors of the model."
    return text


def _intervals(contents: ReportContents) -> str:
    missing = [
        result_title(key, each)
        for key, each in contents.estimates.items()
        if each.get("value") is not None and each.get("interval") is None
    ]
    text = f"The nominal level is {percent(contents.ci)}. The coverage measured in simulations is listed on the page “Guarantees” of the documentation."
    if missing:
        text += f" Without interval: {', '.join(missing)}."
    return text
