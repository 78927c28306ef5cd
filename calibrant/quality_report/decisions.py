"""Decision thresholds in sentences: of the predictions that are acted on, how many had the outcome, and how many were predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from calibrant.core.time_texts import day_of
from calibrant.figures.numbers import interval_text, percent, plain_number
from calibrant.inference.bin_gaps import widest_gap
from calibrant.quality_report.contents import ReportContents

RATES = "Sensitivity: share of those with the outcome that were flagged. Specificity: share of the others that were not."


def flagged_sentences(contents: ReportContents) -> list[str]:
    """Return a sentence for each decision threshold whose net benefit the report has, with the rates of both outcomes."""
    return [
        " ".join(
            filter(None, [flagged_sentence(each, contents.score_of(each)), rates_sentence(each)])
        )
        for each in contents.thresholds
    ]


def flagged_note(contents: ReportContents) -> str:
    """Return what predictions the sentences at thresholds describe, and what their rates mean."""
    period = ["Over all days of the report."] if contents.drift is not None else []
    if contents.since_change is not None:
        at = datetime.fromisoformat(contents.since_change["start"]).timestamp()
        period = [f"Since the change, {day_of(int(at))}."]
    has_rates = any(rates_of(each) for each in contents.thresholds)
    if any(each["scope"] != "top_label" for each in contents.thresholds):
        period.append("A prediction is flagged if its score is at least the threshold.")
    return " ".join([*period, *([RATES] if has_rates else [])])


def harm_sentences(contents: ReportContents) -> list[str]:
    """Return the decision thresholds at which acting on the model is certain to be worse than not acting."""
    return [
        f"Acting on the model at threshold {each['threshold']:g} is worse than not acting: its net benefit is "
        f"{plain_number(each['value'])} ({interval_text(each['interval'])})."
        for each in contents.thresholds
        if each.get("interval") is not None and each["interval"][1] < 0.0
    ]


def rates_of(each: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return sensitivity and specificity at a threshold; None of the top class, and where all outcomes are of one kind.

    The net benefit of acting on all has the share with the outcome: it is that share minus the cost of the others.

    >>> at = {"threshold": 0.5, "treat_all": -0.6, "scope": "positive", "acted_on": 0.3, "observed": 0.5}
    >>> [round(each, 4) for each in rates_of(at)]
    [0.75, 0.8125]
    """
    cost = each["threshold"] / (1.0 - each["threshold"])
    with_outcome = (each["treat_all"] + cost) / (1.0 + cost)
    if each["scope"] == "top_label" or not 1e-12 < with_outcome < 1.0 - 1e-12:
        return None
    observed = each["observed"] or 0.0
    false_alarms = each["acted_on"] * (1.0 - observed) / (1.0 - with_outcome)
    return each["acted_on"] * observed / with_outcome, 1.0 - false_alarms


def rates_sentence(each: Mapping[str, Any]) -> str:
    """Return sensitivity and specificity at a threshold as a sentence; empty where there are none.

    >>> rates_sentence({"threshold": 0.5, "treat_all": -0.6, "scope": "positive", "acted_on": 0.3, "observed": 0.5})
    'Sensitivity 75 %, specificity 81 %.'
    """
    rates = rates_of(each) if "treat_all" in each else None
    return (
        "" if rates is None else f"Sensitivity {_share(rates[0])}, specificity {_share(rates[1])}."
    )


def _share(value: float) -> str:
    """Return a share without what rounding adds below 0 or above 1."""
    return percent(min(max(round(value, 12), 0.0), 1.0))


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


def flagged_sentence(each: Mapping[str, Any], score: str | None = None) -> str:
    """Return what became of the predictions at or above a decision threshold.

    Parameters
    ----------
    each : result of `net_benefit`
    score : what the score is, as `ReportContents.score_of`

    >>> flagged_sentence({"threshold": 0.2, "scope": "positive", "acted_on": 0.3, "observed": 0.14, "predicted": 0.2})
    'Threshold 0.2: 30 % of the predictions were flagged. Of 100 flagged, 14 had the outcome; the model predicted 20.'
    >>> flagged_sentence({"threshold": 0.8, "scope": "top_label", "acted_on": 0.4, "observed": 0.83, "predicted": 0.9})
    'Threshold 0.8: the model was at least 80 % sure of its class in 40 % of the predictions. Of 100 of these, 83 were correct; the model predicted 90.'
    >>> flagged_sentence({"threshold": 0.2, "scope": "top_label", "acted_on": 1.0, "observed": 0.7, "predicted": 0.7})
    'Threshold 0.2: the model was at least 20 % sure of its class in all predictions. Evaluate the class on which you act instead.'
    """
    start, is_top = f"Threshold {each['threshold']:g}", each["scope"] == "top_label"
    sure = f"the model was at least {percent(each['threshold'])} sure of its class in"
    if each["observed"] is None:
        return f"{start}: {f'{sure} no' if is_top else 'no'} prediction{'' if is_top else ' was flagged'}."
    if is_top and each["acted_on"] == 1.0:
        return f"{start}: {sure} all predictions. Evaluate the class on which you act instead."
    share = f"{percent(each['acted_on'])} of the predictions"
    return f"{start}: {f'{sure} {share}' if is_top else f'{share} were flagged'}. {_of_many(each, score)}"


def _of_many(each: Mapping[str, Any], score: str | None) -> str:
    """Return how many of 100 had the outcome, and how many were predicted to."""
    shares = [each["observed"], each["predicted"]]
    n = _group(shares)
    observed, predicted = (f"{n * share:.0f}" for share in shares)
    which = "of these" if each["scope"] == "top_label" else "flagged"
    return f"Of {n:,} {which}, {observed} {_outcome(each, score)}; the model predicted {predicted}."


def _outcome(each: Mapping[str, Any], score: str | None) -> str:
    """Return what is observed of the flagged predictions.

    >>> _outcome({"scope": "class:1"}, "probability of malignant"), _outcome({"scope": "positive"}, "probability of class 1")
    ('had the label malignant', 'had the outcome')
    """
    if each["scope"] == "top_label":
        return "were correct"
    name = (score or "").removeprefix("probability of ")
    return "had the outcome" if name in ("", "class 1") else f"had the label {name}"


def _group(shares: Sequence[float]) -> int:
    """Return 100, or 1,000 for shares that would be rounded to none or all.

    >>> _group([0.892, 0.963]), _group([0.004, 0.2]), _group([0.0, 0.2])
    (100, 1000, 100)
    """
    return 1000 if any(0 < share < 0.02 or 0.98 < share < 1 for share in shares) else 100
