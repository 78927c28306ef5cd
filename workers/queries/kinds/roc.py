"""The receiver operating characteristic of a window, and the area under it with its interval."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from pydantic import Field

from calibrant.core.documents import Result
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery, default_bins
from calibrant.core.view import View
from calibrant.estimators.roc import MAX_POINTS, POINTS, roc
from calibrant.inference.metrics_differences import differences
from calibrant.metrics import accumulators_for, compute_metrics
from calibrant_server.workers.queries.kind import (
    Against,
    Inputs,
    ResultKind,
    other_side,
    reject_other_classes,
)
from calibrant_server.workers.queries.query import CI, Edges, Query, Raters, scope_of
from calibrant_server.workers.store.model_config import ModelConfig


class RocQuery(Query):
    """Which score is ranked, and against which labels."""

    kind: ClassVar[str] = "roc"

    scope: str | None = Field(
        None,
        max_length=200,
        description="positive, class:NAME (one against the rest) or top_label (correct against incorrect). "
        "Default: the model's own scope.",
    )
    raters: Raters = "pooled"
    edges: Edges = Field(
        "right", description="Edges of plain histograms in the window, if there are any."
    )
    points: int = Field(
        POINTS, ge=2, le=MAX_POINTS, description="Maximum number of points of the curve."
    )
    ci: float = CI

    def resolved(self, config: ModelConfig) -> Query:
        return self.own(scope=scope_of(self.scope, config))


def accumulators(query: RocQuery) -> Iterable[str]:
    """Counts, plain histograms, replicates and the cells of the scope."""
    return accumulators_for(["auc"])


def compute(query: RocQuery, inputs: Inputs) -> Result:
    """The curve; `area` is the metric `auc` as `GET metrics` returns it."""
    view = _view(query, inputs.pane)
    area = compute_metrics(view, ["auc"], inputs.seed)["auc"]
    return roc(view, query.points) | {"ci": query.ci, "area": area}


def compare(query: RocQuery, inputs: Inputs, other: Inputs, against: Against) -> Result:
    """The same; `area` with the other side's value, the difference and its interval."""
    reject_other_classes(inputs.config, other.config)
    area = differences(_view(query, inputs.pane), _view(query, other.pane), ["auc"], inputs.seed)[
        "auc"
    ]
    return compute(query, inputs) | {
        "area": area,
        "against": other_side(against, inputs.pane, other),
    }


def _view(query: RocQuery, pane: Pane) -> View:
    """A curve has no bins, but every view has some, which must be exact on the grid."""
    bins = default_bins(pane.spec, query.scope)
    pane_query = PaneQuery(
        bins=bins, edges=query.edges, raters=query.raters, scope=query.scope, ci=query.ci
    )
    return View(pane, pane_query)


KIND = ResultKind(RocQuery, compute, accumulators, compare, compared_accumulators=("sample",))
