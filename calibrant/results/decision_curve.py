"""The decision curve: net benefit over thresholds, with that of acting on all and on none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery, default_bins
from calibrant.core.view import NoResultError, View
from calibrant.figures.decision_curve import draw_benefits, draw_decision_curve
from calibrant.metrics import accumulators_for
from calibrant.metrics.net_benefit import THRESHOLD, benefit_at, interval_at, scope_of
from calibrant.results.base import Result, may_say, says
from calibrant.results.models import Model, scope_by_index
from calibrant.results.reads import Query, Raters, State, label_policy, level, read

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS, MAX_POINTS = 99, 199


@dataclass(frozen=True, kw_only=True)
class DecisionCurveQuery(Query):
    """On which score one acts, and at which thresholds."""

    scope: str | None = says(
        "positive, class:NAME or top_label. Default: class 1 of two classes, else the top class.",
        None,
        max_length=200,
    )
    low: float = says("Lowest threshold.", 0.01, ge=0.001, le=0.999)
    high: float = says("Highest threshold.", 0.99, ge=0.001, le=0.999)
    points: int = says("Number of thresholds, at equal distances.", POINTS, ge=2, le=MAX_POINTS)
    raters: Raters = label_policy()
    ci: float = level()

    def resolved(self, model: Model, given: Collection[str]) -> Mapping[str, Any]:
        scope = scope_by_index(self.scope, model)
        PaneQuery(bins=default_bins(model.spec(), scope), scope=scope).check(model.spec())
        if self.low >= self.high:
            detail = f"Received low={self.low:g} and high={self.high:g}; expected low below high."
            raise CalibrationInputError.at("/low", "order", detail)
        return {"scope": scope}

    @property
    def thresholds(self) -> list[float]:
        """The thresholds, rounded so that 0.3 is 0.3."""
        found: list[float] = np.linspace(self.low, self.high, self.points).round(12).tolist()
        return found


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class DecisionCurve(Result):
    """Net benefit by threshold, in true positives per prediction; that of acting on none is 0."""

    scope: str
    raters: str
    ci: float = says("Level of the intervals, each of one threshold.")
    n: int = says("Labelled predictions.")
    n_ratings: int
    prevalence: float | None = says("Share with the outcome.")
    threshold: list[float] = says("One acts on scores of at least this.")
    net_benefit: list[float] = says(
        "Of acting on the model: TP/n - FP/n · t/(1 - t). Empty without data."
    )
    treat_all: list[float] = says("Of acting on every prediction.")
    acted_on: list[float] = says("Share of the predictions that are acted on.")
    interval: list[list[float] | None] = says("Of `net_benefit`; null where there is none.")
    interval_reason: list[str | None] = says("Why there is none.")
    error_bound: float | None = may_say("Largest error because a threshold divides stored cells.")
    reason: str | None = may_say("Why there is no curve.")
    detail: str | None = may_say("The same as a sentence.")

    def plot(self, ax: Axes | None = None) -> Axes:  # type: ignore[override]
        """Draw the curve with those of acting on all and on none.

        Parameters
        ----------
        ax : axes to draw into; a new figure where None

        Raises
        ------
        ImportError
            matplotlib is not installed; the extra `plot` brings it.
        """
        from calibrant.figures.base import plotted

        return plotted(draw_decision_curve, draw_benefits, self.to_dict(), ax)


def thresholds_of(given: Sequence[float] | None) -> list[float]:
    """Return thresholds; None for those of the query's defaults.

    Raises
    ------
    CalibrationInputError
        No increasing numbers from 0.001 to 0.999, or more than 199.
    """
    if given is None:
        return DecisionCurveQuery().thresholds
    try:
        found = np.asarray(given, np.float64).ravel()
    except (TypeError, ValueError):
        found = np.zeros(0)
    if not 1 <= len(found) <= MAX_POINTS or not (np.diff(found) > 0).all():
        detail = f"Received {given!s:.60}; expected 1 to {MAX_POINTS} increasing thresholds, such as [0.05, 0.1, 0.2]."
        raise CalibrationInputError.at("/thresholds", "order", detail)
    return [float(THRESHOLD.read(each)) for each in found.tolist()]


def decision_curve_of(view: View, thresholds: Sequence[float]) -> DecisionCurve:
    """Compute the curve of the view's scope; of two classes, class 1 instead of the top label.

    Source
    ------
    Vickers, Elkin (Medical Decision Making 2006).
    """
    try:
        view.reject_histograms()
        found = [(each, benefit_at(view, each)) for each in thresholds]
        points = [(each, reading) for each, reading in found if reading is not None]
        if not points:
            raise NoResultError("no_data", "the window has no labelled prediction")
    except NoResultError as rejection:
        return _curve(view, reason=rejection.reason, detail=rejection.detail)
    intervals = [_interval(view, reading.value, each) for each, reading in points]
    extras = [reading.extra for _, reading in points]
    first = points[0][0]
    cost = first / (1.0 - first)
    bound = max((each.get("error_bound", 0.0) for each in extras), default=0.0)
    return _curve(
        view,
        prevalence=(extras[0]["treat_all"] + cost) / (1.0 + cost),
        threshold=[each for each, _ in points],
        net_benefit=[reading.value for _, reading in points],
        treat_all=[each["treat_all"] for each in extras],
        acted_on=[each["acted_on"] for each in extras],
        interval=[bounds for bounds, _ in intervals],
        interval_reason=[reason for _, reason in intervals],
        error_bound=bound or None,
    )


def _curve(view: View, **found: Any) -> DecisionCurve:
    names = ("threshold", "net_benefit", "treat_all", "acted_on", "interval", "interval_reason")
    empty: dict[str, Any] = {"prevalence": None, **{name: [] for name in names}}
    return DecisionCurve(
        scope=scope_of(view),
        raters=view.pane_query.raters,
        ci=view.pane_query.ci,
        n=view.counts["n_labelled"],
        n_ratings=view.counts["n_ratings"],
        **(empty | found),
    )


def _interval(view: View, value: float, threshold: float) -> tuple[list[float] | None, str | None]:
    try:
        bounds = interval_at(view, value, threshold).bounds
    except NoResultError as rejection:
        return None, rejection.reason
    return [bounds[0], min(bounds[1], 1.0)], None


@read(
    "decision-curve",
    tag="metrics",
    response="The curve, or a figure",
    accumulators=lambda query: accumulators_for(["net_benefit"], query.scope),
)
def decision_curve(state: State, query: DecisionCurveQuery) -> DecisionCurve:
    """Return the net benefit over thresholds, with that of acting on all, as JSON, SVG or PNG."""
    bins = default_bins(state.pane.spec, query.scope)
    pane_query = PaneQuery(bins=bins, raters=query.raters, scope=query.scope, ci=query.ci)
    return decision_curve_of(View(state.pane, pane_query), query.thresholds)
