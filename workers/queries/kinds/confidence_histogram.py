"""The confidence histogram of a window, or of one of its cases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

import numpy as np
from pydantic import Field

from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import default_bins
from calibrant.core.view import NoResultError, View
from calibrant.input.names import MAX_LENGTH
from calibrant.segmentation.histogram_smoothing import WIDEST
from calibrant.segmentation.histogram_state import complete_rows, confidence_of, left
from calibrant_server.workers.queries.kind import (
    Against,
    Inputs,
    ResultKind,
    reject_other_classes,
    result_of_other,
    side_name,
)
from calibrant_server.workers.queries.query import Query, Raters
from calibrant_server.workers.store.model_config import ModelConfig

REJECTED = {"bins_not_exact": "/bins", "unknown_case": "/case"}
WANTED = 120
MAX_BINS = 1 << 14
MAX_STATE_BINS = 1200
# Numbers of one response: 2^14 bins of up to 28 classes.
MAX_NUMBERS = 1_000_000
SHOWN = ("mass", "label", "prediction", "uncertainty", "exact", "missing", "reason")


class ConfidenceHistogramQuery(Query):
    """How fine the histogram is, and of what."""

    kind: ClassVar[str] = "confidence_histogram"

    bins: int | None = Field(
        None,
        ge=2,
        le=MAX_BINS,
        description="Number of bins: one that the grid of classes gives exactly; for a case a divisor of 600. While the stored sample is "
        "complete, any number is allowed, such as 16384. Default: 120, or the nearest exact number.",
    )
    raters: Raters = "pooled"
    case: str | None = Field(
        None, max_length=MAX_LENGTH, description="One case instead of the window."
    )
    smoothing: int = Field(
        0,
        ge=0,
        le=WIDEST,
        description="Number of bins on each side over which a triangle spreads the mass of a bin. The state is unchanged.",
    )

    def resolved(self, config: ModelConfig) -> Query:
        if self.bins is not None:
            return self.own()
        bins = WANTED if self.case is not None else default_bins(config.spec(), "class:0", WANTED)
        return self.own(bins=bins)


def accumulators(query: ConfidenceHistogramQuery) -> Iterable[str]:
    """Counts, plain histograms, cells of the classes and of the top label, uncertainty, scores; for a case its table."""
    if query.case is not None:
        return ("counts", "histograms", "cases")
    if query.bins is not None and MAX_STATE_BINS % query.bins:
        return (*_READ, "sample")
    return _READ


_READ = ("counts", "histograms", "classes", "all_labels", "top_label", "uncertainty", "scores")


def compute(query: ConfidenceHistogramQuery, inputs: Inputs) -> Result:
    """The histograms; `label` is None, with a `reason`, where the window cannot give them.

    Raises
    ------
    CalibrationInputError
        Bins that the stored cells cannot give exactly, or a case of which no table is stored.
    """
    pane, case, bins = inputs.pane, query.case, query.bins or WANTED
    _reject_large(pane.spec.n_classes, bins)
    rows = None if case is not None else complete_rows(pane, bins)
    # A case has cells of its own, whatever the model's grid.
    pane_query = replace(left(bins, query.raters), scope="class:0", own_bins=case is not None)
    try:
        view = View(pane, pane_query, rows)
    except CalibrationInputError as error:
        detail = (
            f"{error.violations[0].detail}; other numbers need a complete stored sample, or the rows: "
            "include=confidence_histogram of POST /v1/score"
        )
        raise CalibrationInputError.at("/bins", "bins_not_exact", detail) from error
    classes = inputs.config.classes or [str(k) for k in range(pane.spec.n_classes)]
    about: Result = {"classes": classes, "case": case, "reason": None}
    try:
        return about | confidence_of(view, case=case, smoothing=query.smoothing)
    except NoResultError as rejection:
        if rejection.reason in REJECTED:
            raise CalibrationInputError.at(
                REJECTED[rejection.reason], rejection.reason, rejection.detail
            ) from rejection
        empty: Result = {"raters": view.pane_query.raters, "bins": bins, "edges": "left", "n": 0}
        return (
            about | empty | {"label": None, "reason": rejection.reason, "detail": rejection.detail}
        )


def _reject_large(n_classes: int, bins: int) -> None:
    numbers = 2 * (n_classes + 2) * bins
    if numbers > MAX_NUMBERS:
        largest = MAX_NUMBERS // (2 * (n_classes + 2))
        detail = f"Received {bins} bins of {n_classes} classes; expected at most {largest}, {MAX_NUMBERS} numbers in all."
        raise CalibrationInputError.at("/bins", "range", detail)


def compare(
    query: ConfidenceHistogramQuery, inputs: Inputs, other: Inputs, against: Against
) -> Result:
    """The same; `against` has the other side's histograms, `distance` half the sum of absolute differences of mass shares by class.

    `distance` is None where one side has no mass. A case that the other side lacks is a reason there.
    """
    reject_other_classes(inputs.config, other.config)
    mine = compute(query, inputs)
    theirs = {"label": None} | result_of_other(compute, query, other, query.case)
    shown = {name: theirs[name] for name in SHOWN if name in theirs}
    sides = [np.asarray(each["label"]) for each in (mine, theirs) if each["label"] is not None]
    distance = None
    if len(sides) == 2 and all(side.sum() > 0 for side in sides):
        shares = [side / side.sum(axis=(1, 2), keepdims=True) for side in sides]
        distance = (np.abs(shares[0] - shares[1]).sum(axis=(1, 2)) / 2.0).tolist()
    about = side_name(against, other) | other.pane.counts | shown
    return mine | {"against": about, "distance": distance}


KIND = ResultKind(ConfidenceHistogramQuery, compute, accumulators, compare)
