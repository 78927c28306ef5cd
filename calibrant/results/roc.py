"""The receiver operating characteristic of a score, and the area under it with its interval."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats
from calibrant.core.cells import Cells
from calibrant.core.query import PaneQuery, default_bins
from calibrant.core.view import NoResultError, View
from calibrant.estimators.roc_curve import (
    MAX_POINTS,
    POINTS,
    area,
    correct_and_incorrect,
    rates,
    roc_cells,
    unordered_deviation,
    unordered_share,
)
from calibrant.inference.metrics_differences import differences
from calibrant.metrics import accumulators_for, estimates
from calibrant.metrics.estimate import Estimate
from calibrant.results.base import Result, may_say, says
from calibrant.results.models import Model, scope_of
from calibrant.results.reads import (
    Edges,
    Query,
    Raters,
    State,
    label_policy,
    level,
    other_side,
    read,
)


@dataclass(frozen=True, kw_only=True, repr=False)
class RocCurve(Result):
    """The curve from the highest threshold down."""

    scope: str
    raters: str
    n: int | None = says("Labelled predictions; null of histograms that do not carry it.")
    n_ratings: int
    auc: float | None = says("Area under the curve; ties count half.")
    error_bound: float | None = may_say("Largest error that cells can cause.")
    error_estimate: float | None = may_say("Error to expect from cells.")
    positives: float | None = may_say("Total weight of the positives.")
    negatives: float | None = may_say("Total weight of the negatives.")
    threshold: list[float | None] = says("This score or a higher one counts as positive.")
    true_positive_rate: list[float]
    false_positive_rate: list[float]
    reason: str | None = may_say("Why there is no curve.")
    detail: str | None = may_say("The same as a sentence.")


@dataclass(frozen=True, kw_only=True, repr=False)
class Roc(RocCurve):
    """The curve from the highest threshold down, and the area under it."""

    ci: float = says("Level of the intervals.")
    area: Estimate = says("The metric `auc`, with its interval and null reference.")
    against: dict[str, Any] | None = may_say("The other side, and the data that both share.")


@dataclass(frozen=True, kw_only=True)
class RocQuery(Query):
    """Which score is ranked, and against which labels."""

    scope: str | None = says(
        "positive, class:NAME (one against the rest) or top_label (correct against incorrect). "
        "Default: the model's own scope.",
        None,
        max_length=200,
    )
    raters: Raters = label_policy()
    edges: Edges = says("Edges of plain histograms in the window, if there are any.", "right")
    points: int = says("Maximum number of points of the curve.", POINTS, ge=2, le=MAX_POINTS)
    ci: float = level()

    def resolved(self, model: Model, given: Collection[str]) -> Mapping[str, Any]:
        return {"scope": scope_of(self.scope, model)}

    def view(self, state: State) -> View:
        """Return the view of a window. A curve has no bins, but every view has some, exact on the grid."""
        bins = default_bins(state.pane.spec, self.scope)
        return View(
            state.pane,
            PaneQuery(
                bins=bins, edges=self.edges, raters=self.raters, scope=self.scope, ci=self.ci
            ),
        )


def roc_curve(view: View, points: int = POINTS) -> RocCurve:
    """Compute the curve of the view's scope.

    Parameters
    ----------
    points : maximum number on the curve, at nearly equal distances along it; the area uses all cells

    Source
    ------
    Kock, Thielke et al., section 2.3; as everywhere here, ratings of a prediction may differ.
    """
    try:
        cells, divisible = roc_cells(view, view.scope)
        if not len(cells):
            raise NoResultError("no_data", "the window has no labelled prediction")
        right, wrong = correct_and_incorrect(cells)
    except NoResultError as rejection:
        return _curve(view, reason=rejection.reason, detail=rejection.detail)
    true, false = rates(right, wrong)
    shown = _spread(true + false, points)
    lower = np.concatenate([[np.nan], _lowest(view, cells)[::-1]])
    return _curve(
        view,
        auc=float(area(right, wrong)),
        error_bound=unordered_share(right, wrong, divisible),
        error_estimate=unordered_deviation(cells, divisible),
        positives=float(right.sum()),
        negatives=float(wrong.sum()),
        threshold=[None if np.isnan(each) else float(each) for each in lower[shown]],
        true_positive_rate=true[shown].tolist(),
        false_positive_rate=false[shown].tolist(),
    )


def _curve(view: View, **found: Any) -> RocCurve:
    counts = view.counts | view.histogram_counts(view.scope)
    empty: dict[str, Any] = {"threshold": [], "true_positive_rate": [], "false_positive_rate": []}
    return RocCurve(
        scope=view.scope,
        raters=view.pane_query.raters,
        n=counts.get("n", counts["n_labelled"]),
        n_ratings=counts["n_ratings"],
        **({"auc": None} | empty | found),
    )


def _lowest(view: View, cells: Cells) -> Floats:
    """Return the lower bound of each cell; of bins that only histograms fill, their edge."""
    mean = np.clip(cells.mean, 0.0, 1.0)
    grid = view.spec.grid_for(view.scope).cells
    return np.where(np.isfinite(cells.lower), cells.lower, np.floor(mean * grid) / grid)


def _spread(along: Floats, points: int) -> NDArray[np.int64]:
    """Return places of at most `points` values nearly equally spaced along a rising array, including its ends."""
    if len(along) <= points:
        return np.arange(len(along))
    wanted = np.linspace(along[0], along[-1], points)
    return np.unique(np.searchsorted(along, wanted, side="left").clip(0, len(along) - 1))


def _accumulators(query: RocQuery) -> Iterable[str]:
    return accumulators_for(["auc"])


def _compared(state: State, other: State, query: RocQuery) -> Roc:
    """Return the curve; `area` with the other side's value, the difference and its interval."""
    found = differences(query.view(state), query.view(other), ["auc"], state.seed)["auc"]
    area_ = Estimate.from_dict(found, "auc")
    return replace(roc(state, query), area=area_, against=other_side(state, other))


@read(
    "roc",
    tag="reliability",
    response="The curve, or a figure",
    accumulators=_accumulators,
    compare=_compared,
    compared_accumulators=("sample",),
)
def roc(state: State, query: RocQuery) -> Roc:
    """Return the receiver operating characteristic of a score as JSON, SVG or PNG."""
    view = query.view(state)
    area = estimates(view, ["auc"], state.seed)["auc"]
    return Roc(**vars(roc_curve(view, query.points)), ci=query.ci, area=area)
