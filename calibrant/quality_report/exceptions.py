"""Exceptions to a verdict on average: a class, a decision threshold or a range of scores whose error is certain to be too large."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from calibrant.figures.numbers import interval_text, percent, plain_number
from calibrant.inference.bin_gaps import widest_gap
from calibrant.quality_report.contents import ReportContents
from calibrant.quality_report.decisions import flagged_sentence, gap_sentence

# Classes that are named with their error; of the others their number is stated.
MAX_NAMED = 3
# Of the share with the outcome: beyond so many, a difference is more than chance. The least is that of shares of exactly 0 or 1.
STANDARD_ERRORS, NO_VARIANCE = 2.0, 1e-9


@dataclass(frozen=True)
class VerdictException:
    """Predictions for which the verdict does not hold.

    Attributes
    ----------
    what : such as "the predictions flagged at threshold 0.3"
    sentence : what the labels show of them
    """

    what: str
    sentence: str


def exceptions_of(contents: ReportContents) -> list[VerdictException]:
    """Return where an error that is within the tolerance on average is certain to exceed it."""
    found = (_classes(contents), _thresholds(contents), _ranges(contents))
    return [each for kind in found for each in kind]


def _classes(contents: ReportContents) -> Iterator[VerdictException]:
    """Return the classes whose own error is above the tolerance: in the top class, errors of several classes can cancel."""
    tolerance, limits = contents.tolerance or 0.0, {}
    for score, each in contents.class_errors.items():
        bounds = each.get("interval")
        if bounds is not None and bounds[0] > tolerance:
            limits[score] = bounds[0]
    worst = sorted(limits, key=lambda score: -limits[score])
    for place, score in enumerate(worst[:MAX_NAMED]):
        each = contents.class_errors[score]
        error = f"{plain_number(each['value'])} ({interval_text(each['interval'])})"
        others = len(worst) - MAX_NAMED if place == MAX_NAMED - 1 else 0
        more = f" The same holds for {others} more." if others > 0 else ""
        yield VerdictException(f"the {score}", f"Not of the {score}: its error is {error}.{more}")


def _thresholds(contents: ReportContents) -> Iterator[VerdictException]:
    """Return the decision thresholds at which predicted and observed share differ beyond tolerance and chance, the worst in full."""
    n_units = int((contents.since_change or contents.metrics).get("n_units") or 0)
    rated = [(_excess(each, contents.tolerance or 0.0, n_units), each) for each in contents.thresholds]  # fmt: skip
    misleading = [(excess, each) for excess, each in rated if excess > 0.0]
    if not misleading:
        return
    (_, each), *others = sorted(misleading, key=lambda pair: -pair[0])
    named = sorted(other["threshold"] for _, other in others)
    also = f" Nor at {_listed([f'{one:g}' for one in named])}." if named else ""
    at = _listed([f"{one:g}" for one in sorted([each["threshold"], *named])])
    yield VerdictException(
        f"predictions flagged at threshold{'s' if named else ''} {at}",
        f"Not of the flagged predictions. {flagged_sentence(each, contents.score_of(each))}{also}",
    )


def _excess(each: Mapping[str, Any], tolerance: float, n_units: int) -> float:
    """Return by how many standard errors the predicted share is farther from the observed one than tolerance and chance allow."""
    n = each.get("acted_on", 0.0) * n_units
    if each.get("observed") is None or not n:
        return 0.0
    variance = max(share * (1.0 - share) for share in (each["observed"], each["predicted"]))
    beyond = abs(each["predicted"] - each["observed"]) - tolerance
    return float(beyond / max((variance / n) ** 0.5, NO_VARIANCE) - STANDARD_ERRORS)


def _ranges(contents: ReportContents) -> Iterator[VerdictException]:
    rows, tolerance = (contents.reliability or {}).get("table") or (), contents.tolerance or 0.0
    row = widest_gap(rows, tolerance)
    if row is not None:
        sentence = f"Not in every range of scores. {gap_sentence(rows, tolerance)}"
        yield VerdictException(f"scores near {percent(row['mean_confidence'])}", sentence)


def _listed(texts: list[str]) -> str:
    """Return texts as one.

    >>> _listed(["0.1"]), _listed(["0.1", "0.3", "0.5"])
    ('0.1', '0.1, 0.3 and 0.5')
    """
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))
