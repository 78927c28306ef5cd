"""Predictions against the distribution of their ratings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from calibrant.core.documents import Result
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery, default_bins
from calibrant.core.view import View
from calibrant.inference.metrics_differences import differences
from calibrant.metrics import accumulators_for, compute_metrics
from calibrant_server.workers.queries.kind import (
    Against,
    Inputs,
    ResultKind,
    other_side,
    reject_other_classes,
)
from calibrant_server.workers.queries.query import CI, Query

SLUGS = ("ent_ce", "dist_ce", "rank_cs")


class LabelDistributionQuery(Query):
    """Ratings are compared as they are, whatever the label policy."""

    kind: ClassVar[str] = "label_distribution"

    ci: float = CI


def accumulators(query: LabelDistributionQuery) -> Iterable[str]:
    """What the three metrics read."""
    return accumulators_for(SLUGS)


def compute(query: LabelDistributionQuery, inputs: Inputs) -> Result:
    """EntCE, DistCE and RankCS with their quantiles and histograms."""
    view = _view(query, inputs.pane)
    about: Result = {
        "n": view.counts["n_labelled"],
        "n_ratings": view.counts["n_ratings"],
        "ci": query.ci,
    }
    return about | compute_metrics(view, SLUGS, inputs.seed)


def compare(
    query: LabelDistributionQuery, inputs: Inputs, other: Inputs, against: Against
) -> Result:
    """The same; each measure with the other side's value, the difference and its interval."""
    reject_other_classes(inputs.config, other.config)
    compared = differences(_view(query, inputs.pane), _view(query, other.pane), SLUGS, inputs.seed)
    return compute(query, inputs) | compared | {"against": other_side(against, inputs.pane, other)}


def _view(query: LabelDistributionQuery, pane: Pane) -> View:
    """The measures have no bins, but every view has some, which must be exact on the grid."""
    return View(pane, PaneQuery(bins=default_bins(pane.spec), ci=query.ci))


KIND = ResultKind(
    LabelDistributionQuery, compute, accumulators, compare, compared_accumulators=("sample",)
)
