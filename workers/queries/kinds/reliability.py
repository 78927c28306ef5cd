"""The reliability table of a window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from calibrant.core.documents import Result
from calibrant.core.view import View
from calibrant.inference.reliability_differences import reliability_difference
from calibrant.inference.reliability_table import reliability
from calibrant.raters.label_coverage import PARTS, coverage
from calibrant.results.queries import ReliabilityQuery as LibraryReliabilityQuery
from calibrant_server.workers.queries.declared import query_class
from calibrant_server.workers.queries.kind import (
    Against,
    Inputs,
    ResultKind,
    other_side,
    reject_other_classes,
)

_SCOPES = {"top_label": ("top_label",), "positive": ("positive",)}


class ReliabilityQuery(query_class(LibraryReliabilityQuery)):  # type: ignore[misc]
    """How the table is made."""

    kind: ClassVar[str] = "reliability"


def accumulators(query: ReliabilityQuery) -> Iterable[str]:
    """Counts, plain histograms, the cells of the scope, and replicates, which show the dependence within units."""
    scopes = _SCOPES.get(query.scope or "", ("top_label", "positive", "classes", "all_labels"))
    return ("counts", "histograms", "replicates", *PARTS, *scopes)


def compute(query: ReliabilityQuery, inputs: Inputs) -> Result:
    """The table of the requested bins, with intervals."""
    view = View(inputs.pane, query.plain().pane_query())
    return reliability(view) | {"label_coverage": coverage(inputs.pane, ci=query.ci)}


def compare(query: ReliabilityQuery, inputs: Inputs, other: Inputs, against: Against) -> Result:
    """The same, with the other side's bins and the difference of gaps in each."""
    reject_other_classes(inputs.config, other.config)
    pane_query, pane = query.plain().pane_query(), inputs.pane
    found = reliability_difference(
        View(pane, pane_query), View(other.pane, pane_query), inputs.seed
    )
    about = {
        "label_coverage": coverage(pane, ci=query.ci),
        "against": other_side(against, pane, other),
    }
    return found | about


KIND = ResultKind(
    ReliabilityQuery, compute, accumulators, compare, compared_accumulators=("sample",)
)
