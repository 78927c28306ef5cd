"""The uncertainty diagram of a window: share of errors by entropy of the predictions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from pydantic import Field

from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.inference.metrics_differences import differences
from calibrant.metrics import accumulators_for
from calibrant.report_uncertainty import uncertainty
from calibrant_server.workers.queries.kind import (
    Against,
    Inputs,
    ResultKind,
    other_side,
    reject_other_classes,
)
from calibrant_server.workers.queries.query import CI, EDGES, Edges, Query, Raters


class UncertaintyQuery(Query):
    """How the table is made."""

    kind: ClassVar[str] = "uncertainty"

    bins: int = Field(15, ge=1, le=240, description="Number of bins; a divisor of 240.")
    edges: Edges = EDGES
    raters: Raters = "pooled"
    ci: float = CI

    def pane_query(self) -> PaneQuery:
        """Return the query of the view; bins consist of the table's own cells."""
        return PaneQuery(
            bins=self.bins, edges=self.edges, raters=self.raters, ci=self.ci, own_bins=True
        )


def accumulators(query: UncertaintyQuery) -> Iterable[str]:
    """What the metric `uce` reads."""
    return accumulators_for(["uce"])


def compute(query: UncertaintyQuery, inputs: Inputs) -> Result:
    """The uncertainty calibration error with its table.

    Raises
    ------
    CalibrationInputError
        Bins that the 240 cells of uncertainty cannot give exactly.
    """
    found = uncertainty(View(inputs.pane, query.pane_query()), inputs.seed)
    if found.get("reason") == "bins_not_exact":
        raise CalibrationInputError.at("/bins", "bins_not_exact", found["detail"])
    return found


def compare(query: UncertaintyQuery, inputs: Inputs, other: Inputs, against: Against) -> Result:
    """The same, with the difference from the other side's error and its interval; `against` has that error and its table."""
    reject_other_classes(inputs.config, other.config)
    mine, theirs = compute(query, inputs), compute(query, other)
    pane_query = query.pane_query()
    compared = differences(
        View(inputs.pane, pane_query), View(other.pane, pane_query), ["uce"], inputs.seed
    )["uce"]
    shown = {name: value for name, value in compared.items() if name.startswith("difference")}
    about = {"value": theirs["value"], "table": theirs["table"]}
    return mine | shown | {"against": other_side(against, inputs.pane, other) | about}


KIND = ResultKind(
    UncertaintyQuery, compute, accumulators, compare, compared_accumulators=("sample",)
)
