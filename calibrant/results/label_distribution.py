"""Predictions against the distribution of their ratings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from calibrant.core.query import PaneQuery, default_bins
from calibrant.core.view import View
from calibrant.inference.metrics_differences import differences
from calibrant.metrics import accumulators_for, estimates
from calibrant.metrics.estimate import Estimate
from calibrant.results.base import Result, may_say, says
from calibrant.results.reads import Query, State, level, other_side, read

SLUGS = ("ent_ce", "dist_ce", "rank_cs")


@dataclass(frozen=True, kw_only=True)
class LabelDistributionQuery(Query):
    """Ratings are compared as they are, whatever the label policy."""

    ci: float = level()

    def view(self, state: State) -> View:
        """Return the view of a window. The measures have no bins, but every view has some, exact on the grid."""
        return View(state.pane, PaneQuery(bins=default_bins(state.pane.spec), ci=self.ci))


@dataclass(frozen=True, kw_only=True, repr=False)
class LabelDistribution(Result):
    """The three measures, with quantiles and a histogram over predictions."""

    n: int = says("Labelled predictions.")
    n_ratings: int
    ci: float = says("Level of the intervals.")
    ent_ce: Estimate = says("The metric `ent_ce`, with its histogram over predictions.")
    dist_ce: Estimate = says("The metric `dist_ce`, with its histogram over predictions.")
    rank_cs: Estimate = says("The metric `rank_cs`.")
    against: dict[str, Any] | None = may_say("The other side, and the data that both share.")


def _accumulators(query: LabelDistributionQuery) -> Iterable[str]:
    return accumulators_for(SLUGS)


def _result(view: View, found: Mapping[str, Any], **more: Any) -> LabelDistribution:
    counts = view.counts
    n, n_ratings = counts["n_labelled"], counts["n_ratings"]
    return LabelDistribution(n=n, n_ratings=n_ratings, ci=view.pane_query.ci, **found, **more)


def _compared(state: State, other: State, query: LabelDistributionQuery) -> LabelDistribution:
    """Return the measures, each with the other side's value, the difference and its interval."""
    view = query.view(state)
    compared = differences(view, query.view(other), SLUGS, state.seed)
    found = {slug: Estimate.from_dict(each, slug) for slug, each in compared.items()}
    return _result(view, found, against=other_side(state, other))


@read(
    "label-distribution",
    tag="reliability",
    response="The measures, or their histograms",
    accumulators=_accumulators,
    compare=_compared,
    compared_accumulators=("sample",),
)
def label_distribution(state: State, query: LabelDistributionQuery) -> LabelDistribution:
    """Return how predictions differ from the distribution of their ratings as JSON, SVG or PNG."""
    view = query.view(state)
    return _result(view, estimates(view, SLUGS, state.seed))
