"""The reliability table of a window, and the diagram of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from calibrant.core.errors import CalibrationInputError
from calibrant.core.view import View
from calibrant.figures.reliability import draw_class_reliability
from calibrant.inference.reliability_differences import reliability_difference
from calibrant.inference.reliability_table import reliability as table_of
from calibrant.metrics import accumulators_for, compute_metrics
from calibrant.raters.label_coverage import PARTS, coverage
from calibrant.results.base import says
from calibrant.results.models import Model
from calibrant.results.queries import EdgesQuery, costly_parts, in_order, parts_of, smallest_bin
from calibrant.results.reads import (
    Edges,
    Raters,
    State,
    edges_of_bins,
    label_policy,
    level,
    other_side,
    read,
)
from calibrant.results.reliability_table import ReliabilityTable
from calibrant.results.tables import Table, Values, with_ends

ERROR = "error"
EACH_CLASS = "each_class"
_SCOPES = {"top_label": ("top_label",), "positive": ("positive",)}
TABLE = Table(
    {
        "model": "text", "from": "time", "to": "time", "scope": "text", "raters": "text", "bin": "integer",
        "lower": "number", "upper": "number", "count": "integer", "n_predictions": "integer", "n_effective": "number",
        "weight": "number", "sum_confidence": "number", "sum_correct": "number", "mean_confidence": "number",
        "accuracy": "number", "gap": "number", "interval_low": "number", "interval_high": "number",
        "difference": "number", "difference_low": "number", "difference_high": "number",
    },
    lambda found: _rows(found),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReliabilityQuery(EdgesQuery):
    """How the table is made."""

    edges: Edges = edges_of_bins()
    raters: Raters = label_policy()
    min_count: float = smallest_bin()
    ci: float = level()
    include: str | None = costly_parts((ERROR,))
    scope: str | None = says(
        "top_label, positive, class:NAME or all; or each_class: a table of every class against the rest, below `classes`, or their "
        "diagrams in one figure (at most 36 classes). Default: positive for binary models, else top_label.",
        None,
        max_length=200,
    )

    def resolved(self, model: Model, given: Collection[str]) -> Mapping[str, Any]:
        return {"include": in_order(self.include, (ERROR,)), **super().resolved(model, given)}

    @property
    def has_error(self) -> bool:
        """Whether the calibration error over the same bins is requested."""
        return ERROR in parts_of(self.include)


def _rows(found: Values) -> Iterable[Values]:
    """Yield each bin; empty bins have no means."""
    shared = {name: found[name] for name in ("model", "scope", "raters")} | found["window"]
    return ({**shared, **with_ends(each)} for each in found["table"])


def _accumulators(query: ReliabilityQuery) -> Iterable[str]:
    """Name counts, plain histograms, the cells of the scope, and replicates, which show the dependence within units."""
    scopes = _SCOPES.get(query.scope or "", ("top_label", "positive", "classes", "all_labels"))
    of_error = accumulators_for(["ece"], query.scope) | {"unit_sample"} if query.has_error else ()
    return ("counts", "histograms", "replicates", *PARTS, *scopes, *of_error)


def _compared(state: State, other: State, query: ReliabilityQuery) -> ReliabilityTable:
    """Return the table with the other side's bins and the difference of gaps in each."""
    if query.binning != "equal_width":
        detail = "Received another binning with against; expected equal_width. Bins of equal mass differ between two sides."
        raise CalibrationInputError.at("/binning", "equal_width", detail)
    mine, theirs = (View(each.pane, query.pane_query()) for each in (state, other))
    found = reliability_difference(mine, theirs)
    about = {"label_coverage": coverage(state.pane, ci=query.ci), "against": other_side(state, other)}  # fmt: skip
    return ReliabilityTable.from_dict(found | about)


@read(
    "reliability",
    tag="reliability",
    response="The table, or the diagram",
    panels=draw_class_reliability,
    drawn={"include": ERROR},
    table=TABLE,
    accumulators=_accumulators,
    compare=_compared,
    compared_accumulators=("sample",),
)
def reliability(state: State, query: ReliabilityQuery) -> ReliabilityTable:
    """Return the reliability table as JSON, CSV or Arrow, or the diagram of it as SVG or PNG."""
    view = View(state.pane, query.pane_query())
    found = table_of(view) | {"label_coverage": coverage(state.pane, ci=query.ci)}
    if query.has_error:
        found[ERROR] = compute_metrics(view, ["ece"], state.seed)["ece"]
    return ReliabilityTable.from_dict(found)
