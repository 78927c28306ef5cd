"""The verdict in sentences: against the tolerance, against a calibrated model, and what could have been found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibrant.figures.numbers import (
    MISSING,
    counted,
    interval_text,
    percent,
    plain_number,
)
from calibrant.figures.reasons import reason_words
from calibrant.inference.replication import MIN_UNITS
from calibrant.inference.slice_test import sentence_of, slice_test
from calibrant.metrics import is_error, slug_of, title_of
from calibrant.metrics.estimate import Estimate
from calibrant.quality_report.advice import advice_of, advice_of_words
from calibrant.quality_report.chance import against_null
from calibrant.quality_report.contents import ReportContents
from calibrant.quality_report.decisions import harm_sentences
from calibrant.quality_report.exceptions import VerdictException, exceptions_of
from calibrant.quality_report.odd_reader import odd_reader_sentences

WORDS = {
    "within_tolerance": "within tolerance",
    "on_average": "within tolerance on average over all predictions",
    "outside": "outside tolerance",
    "not_shown": "undecided",
}
# By the word of calibration: state and headline.
WORD_STATES = {
    "good": ("within_tolerance", "Good"),
    "off": ("outside", "Off"),
    "unknown": ("not_shown", "Undecided"),
}


@dataclass(frozen=True)
class Verdict:
    """The main result in words.

    Attributes
    ----------
    state : "within_tolerance", "on_average" if it is so only on average, "outside", "not_shown", or "none" where there was no tolerance
        or no value
    headline : a few words
    sentences : the verdict itself, at most two unless a warning is due
    details : what chance alone would show, and what to do
    """

    state: str
    headline: str
    sentences: tuple[str, ...]
    details: tuple[str, ...] = ()


def main_metric(estimates: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the metric of the headline: the first ECE, else the first calibration error; None without one."""
    errors = [key for key in estimates if is_error(slug_of(key))]
    return next((key for key in errors if slug_of(key) == "ece"), errors[0] if errors else None)


def errors_of(estimates: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the calibration errors among results."""
    return [each for key, each in estimates.items() if is_error(slug_of(key))]


def verdict_of(each: Mapping[str, Any], tolerance: float) -> str:
    """Return the three-way verdict of one result."""
    bounds = each.get("interval")
    interval = None if bounds is None else (bounds[0], bounds[1])
    return Estimate(each.get("value"), interval=interval).verdict(tolerance)


def subgroup_sentence(contents: ReportContents) -> str | None:
    """Return how many subgroups are outside the tolerance, else what the test of all together says; None if there are fewer than two."""
    tests = {
        each.name: each.metrics["test"] for each in contents.subgroups if each.metrics.get("test")
    }
    if len(tests) < 2:
        return None
    found = [each.metrics.get("metrics") or {} for each in contents.subgroups]
    outside = sum(_is_outside(estimates, contents.tolerance) for estimates in found)
    if outside:
        period = "Over all days of the report: o" if contents.drift is not None else "O"
        return f"{period}utside the tolerance by their own intervals: {outside} of {len(found)} subgroups."
    return sentence_of(slice_test(tests), len(found))


def _is_outside(estimates: Mapping[str, Mapping[str, Any]], tolerance: float | None) -> bool:
    key = main_metric(estimates)
    return (
        key is not None
        and tolerance is not None
        and verdict_of(estimates[key], tolerance) == "outside"
    )


def main_verdict(contents: ReportContents) -> Verdict:
    """Return the verdict of the report."""
    key = main_metric(contents.estimates)
    if key is None:
        return Verdict("none", "No calibration error was requested", ())
    each = contents.estimates[key]
    if each.get("value") is None:
        why = reason_text(each)
        return Verdict("none", "Not enough data", (f"{title_of(key)} has no value: {why}.",))
    measured, warning = _measured(key, each, contents), _unrelated(contents)
    details = (*_before_map(contents), *against_null(each, contents))
    if contents.are_words_the_verdict:
        return _verdict_of_words(contents, measured, (*warning, *details))
    apart = _apart(contents)
    if contents.tolerance is None:
        advice = "No tolerance was set, so there is no verdict. Choose one before you look at the data, such as 0.05."
        return Verdict(
            "none", "Measured, without a tolerance", (measured, *warning, advice, *apart), details
        )
    state = verdict_of(each, contents.tolerance)
    state, exceptions = _with_exceptions(state, contents)
    against = _against_tolerance(state, each, contents)
    sentences = (measured, *warning, against, *(one.sentence for one in exceptions), *apart)
    advice = advice_of(state, each, contents, exceptions)
    return Verdict(state, _capital(WORDS[state]), sentences, (*details, advice))


def _verdict_of_words(contents: ReportContents, measured: str, details: tuple[str, ...]) -> Verdict:
    """Return the two words of a model of a service as the verdict; the measurement is of all data of the report."""
    drift = contents.drift or {}
    calibration, change = drift["calibration"], drift["change"]
    state, word = WORD_STATES[calibration["word"]]
    state, exceptions = _with_exceptions(state, contents)
    headline = f"{word}, changed" if change["word"] == "changed" else word
    if exceptions:
        headline += " on average"
    not_of = [one.sentence for one in exceptions]
    return Verdict(
        state,
        headline,
        (calibration["sentence"], *not_of, change["sentence"], *_apart(contents)),
        (
            advice_of_words(drift["recommendation"], exceptions),
            f"All data of this report: {measured}",
            *details,
        ),
    )


def _apart(contents: ReportContents) -> list[str]:
    """Return what holds whatever the verdict is: thresholds at which acting does harm, and a reader who differs from the others."""
    odd = odd_reader_sentences(contents.odd_reader, contents.reader_errors, contents.classes)
    return [*harm_sentences(contents), *odd]


def _with_exceptions(state: str, contents: ReportContents) -> tuple[str, list[VerdictException]]:
    """Return the state, which is "on_average" if something is outside the tolerance within it, and what that is."""
    exceptions = exceptions_of(contents) if state == "within_tolerance" else []
    return ("on_average" if exceptions else state), exceptions


def _measured(key: str, each: Mapping[str, Any], contents: ReportContents) -> str:
    value, bounds = plain_number(each["value"]), each.get("interval")
    measured = f"{title_of(key)} is {value}{_explained(key, contents.score)}"
    if bounds is None:
        why = reason_words(each.get("interval_reason"))
        text = f"{measured}. It has no interval: {why}."
        n = contents.count("n_units")
        is_few = each.get("interval_reason") == "too_few_units"
        if is_few and n is not None and contents.metrics.get("unit_source") == "named":
            text += f" There {'is' if n == 1 else 'are'} {counted(n, contents.unit)}; intervals need {MIN_UNITS}."
        return text
    text = f"{measured}, with a {percent(contents.ci)} interval from {interval_text(bounds)}."
    if each["value"] > bounds[1]:
        text += " The interval is for the true error. Chance makes the measured error larger, so it can be above its interval."
    return text


def _explained(key: str, score: str | None) -> str:
    """Return what an error is the mean of, or at least of which probability.

    >>> _explained("ece", "probability of tumour"), _explained("ks", "probability of tumour")
    (' (mean difference between the probability of tumour and the observed frequency)', ' (of the probability of tumour)')
    """
    if slug_of(key) == "ece":
        named = "predicted probability" if score is None else f"the {score}"
        return f" (mean difference between {named} and the observed frequency)"
    return f" (of the {score})" if score else ""


def _before_map(contents: ReportContents) -> list[str]:
    """Return that the results are of the probabilities as sent, if a map corrects them."""
    if contents.active_map is None:
        return []
    version = contents.active_map["version"]
    return [
        f"This describes the probabilities as the model sent them, before map version {version}, which is in use."
    ]


def _unrelated(contents: ReportContents) -> list[str]:
    """Return a warning if no temperature relates the probabilities to the labels: rows or classes are in another order."""
    verdict = (contents.temperature or {}).get("verdict")
    if verdict not in ("unrelated", "inverse"):
        return []
    related = "unrelated" if verdict == "unrelated" else "inversely related"
    return [
        f"The labels look {related} to the probabilities. Check that rows and classes of both are in the same order before you "
        "use any number."
    ]


def _against_tolerance(state: str, each: Mapping[str, Any], contents: ReportContents) -> str:
    limit = f"{contents.tolerance:g}"
    if state in ("within_tolerance", "on_average"):
        return f"The complete interval is below the tolerance of {limit}."
    if state == "outside":
        return f"The complete interval is above the tolerance of {limit}."
    why = "There is no interval" if each.get("interval") is None else "The interval contains it"
    return (
        f"Whether the true error is below the tolerance of {limit} or above it is not known. {why}."
    )


def assessment(fitted: Mapping[str, Any]) -> str:
    """Return whether a fitted temperature can be relied on, and on which side of 1 it is.

    Examples
    --------
    >>> assessment({"verdict": "few_units", "detail": "fewer than 30 independent units"})
    'Do not rely on it: fewer than 30 independent units'
    >>> assessment({"verdict": "ok", "interval": [0.941, 1.851]})
    'The data do not show whether it is above 1 or below'
    >>> assessment({"verdict": "ok", "interval": [1.2, 1.8]})
    'The data show that it is above 1: the model is overconfident'
    """
    text, bounds = str(fitted.get("detail") or fitted.get("verdict") or MISSING), fitted.get("interval")  # fmt: skip
    if fitted.get("verdict") not in (None, "ok"):
        return f"Do not rely on it: {text}"
    if not bounds or None in bounds:
        return text
    if bounds[0] <= 1.0 <= bounds[1]:
        return "The data do not show whether it is above 1 or below"
    side = "above 1: the model is over" if bounds[0] > 1.0 else "below 1: the model is under"
    return f"The data show that it is {side}confident"


def reason_text(each: Mapping[str, Any]) -> str:
    """Return why a result has no value."""
    return str(each.get("detail") or reason_words(each.get("reason"), "no data")).rstrip(".")


def brier_note(contents: ReportContents) -> str | None:
    """Return how the Brier score of two classes is counted, with its value for one class; None for other models."""
    found = contents.estimates.get("brier") or {}
    if found.get("brier_binary") is None:
        return None
    return (
        f"The Brier score here is the sum over both classes. Many tools report that of one class, which is half: "
        f"{plain_number(found['brier_binary'])}."
    )


def interval_or_reason(each: Mapping[str, Any]) -> str:
    """Return the interval of a result, or why it has none."""
    if each.get("value") is None:
        return f"no value: {reason_text(each)}"
    if each.get("interval") is None:
        return f"none: {reason_words(each.get('interval_reason'))}"
    return interval_text(each["interval"])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
