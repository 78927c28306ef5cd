"""The confidence histogram of a window, or of one of its cases."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import default_bins
from calibrant.core.view import NoResultError, View
from calibrant.input.names import MAX_LENGTH
from calibrant.results.base import Result, may_say, says
from calibrant.results.models import Model
from calibrant.results.reads import Query, Raters, State, label_policy, read
from calibrant.segmentation.histogram_measures import WIDEST
from calibrant.segmentation.histogram_state import complete_rows, confidence_of, left

REJECTED = {"bins_not_exact": "/bins", "unknown_case": "/case"}
WANTED = 120
MAX_BINS = 1 << 14
MAX_STATE_BINS = 1200
# Numbers of one response: 2^14 bins of up to 28 classes.
MAX_NUMBERS = 1_000_000
SHOWN = ("mass", "label", "prediction", "uncertainty", "exact", "missing", "reason")


@dataclass(frozen=True, kw_only=True)
class ConfidenceHistogramQuery(Query):
    """How fine the histogram is, and of what."""

    bins: int | None = says(
        "Number of bins: one that the grid of classes gives exactly; for a case a divisor of 600. While the stored sample is "
        "complete, any number is allowed, such as 16384. Default: 120, or the nearest exact number.",
        None,
        ge=2,
        le=MAX_BINS,
    )
    raters: Raters = label_policy()
    case: str | None = says("One case instead of the window.", None, max_length=MAX_LENGTH)
    smoothing: int = says(
        "Number of bins on each side over which a triangle spreads the mass of a bin. The state is unchanged.",
        0,
        ge=0,
        le=WIDEST,
    )

    def resolved(self, model: Model, given: Collection[str]) -> Mapping[str, Any]:
        if self.bins is not None:
            return {}
        is_case = self.case is not None
        return {"bins": WANTED if is_case else default_bins(model.spec(), "class:0", WANTED)}


@dataclass(frozen=True, kw_only=True, repr=False)
class Confidence(Result):
    """Mass by class, incorrect and correct, and fine bin [i / bins, (i + 1) / bins), the last with 1."""

    raters: str
    bins: int
    edges: str
    source: str | None = may_say(
        "`state`, or `sample` where only the complete stored sample gives these bins."
    )
    n: int
    n_ratings: int | None = may_say()
    classes: list[str]
    case: str | None
    mass: float | None = may_say()
    smoothing: int | None = may_say()
    label: list[list[list[float]]] | None = says(
        "By class: mass of samples of other classes, and of this class."
    )
    prediction: list[list[float]] | None = says(
        "Mass of incorrect and of correct predictions, by bin of the top class.", None
    )
    uncertainty: list[list[float]] | None = says(
        "Mass of incorrect and of correct predictions, by bin of entropy / log K. The number of bins divides 240.",
        None,
    )
    exact: dict[str, float] | None = says("Sums of NLL and Brier, not rounded to bins.", None)
    missing: dict[str, str] | None = may_say("Why a part is null.")
    against: dict[str, Any] | None = may_say("The other side's histograms.")
    distance: list[float] | None = may_say(
        "With `against`, by class: total variation of the two histograms."
    )
    reason: str | None = None
    detail: str | None = may_say("The reason as a sentence.")


def _accumulators(query: ConfidenceHistogramQuery) -> Iterable[str]:
    """Name counts, plain histograms, cells of the classes and of the top label, uncertainty, scores; for a case its table."""
    if query.case is not None:
        return ("counts", "histograms", "cases")
    if query.bins is not None and MAX_STATE_BINS % query.bins:
        return (*_READ, "sample")
    return _READ


_READ = ("counts", "histograms", "classes", "all_labels", "top_label", "uncertainty", "scores")


def _reject_large(n_classes: int, bins: int) -> None:
    numbers = 2 * (n_classes + 2) * bins
    if numbers > MAX_NUMBERS:
        largest = MAX_NUMBERS // (2 * (n_classes + 2))
        detail = f"Received {bins} bins of {n_classes} classes; expected at most {largest}, {MAX_NUMBERS} numbers in all."
        raise CalibrationInputError.at("/bins", "range", detail)


def _view(state: State, query: ConfidenceHistogramQuery, bins: int) -> View:
    rows = None if query.case is not None else complete_rows(state.pane, bins)
    # A case has cells of its own, whatever the model's grid.
    own_bins = query.case is not None
    pane_query = replace(left(bins, query.raters), scope="class:0", own_bins=own_bins)
    try:
        return View(state.pane, pane_query, rows)
    except CalibrationInputError as error:
        detail = (
            f"{error.violations[0].detail}; other numbers need a complete stored sample, or the rows: "
            "include=confidence_histogram of POST /v1/score"
        )
        raise CalibrationInputError.at("/bins", "bins_not_exact", detail) from error


def _compared(state: State, other: State, query: ConfidenceHistogramQuery) -> Confidence:
    """Return the histogram; `against` has the other side's, `distance` half the sum of absolute differences of mass shares by class.

    `distance` is None where one side has no mass. A case that the other side lacks is a reason there.
    """
    mine = confidence_histogram(state, query)
    theirs = {"label": None} | confidence_histogram.of_other(other, query, query.case)
    shown = {name: theirs[name] for name in SHOWN if name in theirs}
    sides = [np.asarray(each) for each in (mine.label, theirs["label"]) if each is not None]
    distance = None
    if len(sides) == 2 and all(side.sum() > 0 for side in sides):
        shares = [side / side.sum(axis=(1, 2), keepdims=True) for side in sides]
        distance = (np.abs(shares[0] - shares[1]).sum(axis=(1, 2)) / 2.0).tolist()
    return replace(mine, against={**other.name, **other.pane.counts, **shown}, distance=distance)


@read(
    "confidence-histogram",
    tag="histograms",
    response="The histogram, or a figure",
    accumulators=_accumulators,
    compare=_compared,
)
def confidence_histogram(state: State, query: ConfidenceHistogramQuery) -> Confidence:
    """Return the confidence histogram of a window or a case; it may be posted to another model's histograms."""
    n_classes, bins = state.pane.spec.n_classes, query.bins or WANTED
    _reject_large(n_classes, bins)
    view = _view(state, query, bins)
    classes = state.model.classes or [str(k) for k in range(n_classes)]
    about: dict[str, Any] = {"classes": classes, "case": query.case}
    try:
        found = confidence_of(view, case=query.case, smoothing=query.smoothing)
    except NoResultError as rejection:
        if rejection.reason in REJECTED:
            raise CalibrationInputError.at(
                REJECTED[rejection.reason], rejection.reason, rejection.detail
            ) from rejection
        return Confidence(
            **about,
            raters=query.raters,
            bins=bins,
            edges="left",
            n=0,
            label=None,
            reason=rejection.reason,
            detail=rejection.detail,
        )
    return Confidence(**about, **found)
