"""The uncertainty diagram of a window: share of errors by bin of the normalised entropy, and the ideal curve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant.core.arrays import Floats, ratio
from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.inference.metrics_differences import differences
from calibrant.inference.reliability_table import wilson
from calibrant.inference.seeds import SEED
from calibrant.metrics import accumulators_for, estimates
from calibrant.metrics.uce import inverse_binary_entropy, table_of
from calibrant.results.base import may_say, says
from calibrant.results.estimate_values import EstimateValues
from calibrant.results.reads import (
    Edges,
    Query,
    Raters,
    State,
    edges_of_bins,
    label_policy,
    level,
    other_side,
    read,
)

CURVE = np.arange(101) / 100.0


@dataclass(frozen=True, kw_only=True)
class UncertaintyQuery(Query):
    """How the table is made."""

    bins: int = says("Number of bins; a divisor of 240.", 15, ge=1, le=240)
    edges: Edges = edges_of_bins()
    raters: Raters = label_policy()
    ci: float = level()

    def view(self, state: State) -> View:
        """Return the view of a window; bins consist of the table's own cells."""
        pane_query = PaneQuery(
            bins=self.bins, edges=self.edges, raters=self.raters, ci=self.ci, own_bins=True
        )
        return View(state.pane, pane_query)


@dataclass(frozen=True, kw_only=True, repr=False)
class Uncertainty(EstimateValues):
    """The uncertainty calibration error, and the table behind its diagram."""

    raters: str
    bins: int
    edges: str
    ci: float = says("Level of the intervals.")
    table: list[dict[str, Any]] = says(
        "By bin: weight, mean_uncertainty, error_rate with its interval; for two classes ideal_error."
    )
    ideal_curve: dict[str, list[float]] | None = says(
        "For two classes: the share of errors of a calibrated model at each uncertainty."
    )
    against: dict[str, Any] | None = may_say("The other side, its error and its table.")
    detail: str | None = may_say("The reason as a sentence.")


def uncertainty_of(view: View, seed: int = SEED) -> Uncertainty:
    """Compute the metric `uce`, with its bins as rows.

    Source
    ------
    Laves et al. (2019); Kock, Thielke et al., appendix D.
    """
    pane_query = view.pane_query
    reported = estimates(view, ["uce"], seed)["uce"].to_dict()
    table, ideal = reported.pop("table", None), reported.pop("ideal_error", None)
    about = {name: getattr(pane_query, name) for name in ("raters", "bins", "edges", "ci")}
    rows = [] if table is None else _rows(view, table, ideal)
    curve = _curve() if view.spec.n_classes == 2 else None
    return Uncertainty.from_dict(reported | about | {"table": rows, "ideal_curve": curve})


def _curve() -> dict[str, list[float]]:
    return {"uncertainty": CURVE.tolist(), "error": inverse_binary_entropy(CURVE).tolist()}


def _rows(view: View, found: Mapping[str, Any], ideal: list[float] | None) -> list[dict[str, Any]]:
    row_of_bin = {place: i for i, place in enumerate(found["bin"])}
    bounds, n_bins = (_intervals(view) if row_of_bin else None), view.pane_query.bins
    rows = []
    for place in range(n_bins if row_of_bin else 0):
        i = row_of_bin.get(place)
        row = {
            "lower": place / n_bins,
            "upper": (place + 1) / n_bins,
            "weight": 0.0 if i is None else found["weight"][i],
            "mean_uncertainty": None if i is None else found["uncertainty"][i],
            "error_rate": None if i is None else found["error"][i],
            "interval": None
            if i is None or bounds is None
            else [float(each[place]) for each in bounds],
        }
        if ideal is not None:
            row["ideal_error"] = None if i is None else ideal[i]
        rows.append(row)
    return rows


def _intervals(view: View) -> tuple[Floats, Floats] | None:
    """Wilson's interval of each bin's share of errors, with the number of independent predictions that its variance implies.

    None with posted histograms of uncertainty, which have no confidence. As in `reliability`:
    p (1 - p) at the mean confidence, over the variance that labels drawn from the predictions have.
    """
    table = table_of(view)
    if np.isnan(table["confidence"]).any():
        return None
    weight, variance = table["weight"], table["null_variance"]
    share = ratio(table["confidence"], weight)
    error = ratio(weight - table["correct"], weight)
    chance = weight**2 * share * (1.0 - share)
    units = np.divide(chance, variance, out=weight.copy(), where=(variance > 0) & (chance > 0))
    return wilson(np.clip(error, 0.0, 1.0), units, view.pane_query.ci)


def _accumulators(query: UncertaintyQuery) -> Iterable[str]:
    return accumulators_for(["uce"])


def _compared(state: State, other: State, query: UncertaintyQuery) -> Uncertainty:
    """Return the table with the difference of the errors and its interval; `against` has the other error and table."""
    mine, theirs = uncertainty(state, query), uncertainty(other, query)
    compared = differences(query.view(state), query.view(other), ["uce"], state.seed)["uce"]
    shown = {name: value for name, value in compared.items() if name.startswith("difference")}
    about = {"value": theirs.value, "table": theirs.table}
    against = other_side(state, other) | about
    return Uncertainty.from_dict(mine.to_dict() | shown | {"against": against})


@read(
    "uncertainty",
    tag="reliability",
    response="The table, or the diagram",
    accumulators=_accumulators,
    compare=_compared,
    compared_accumulators=("sample",),
)
def uncertainty(state: State, query: UncertaintyQuery) -> Uncertainty:
    """Return the error rate by the entropy of the predictions as JSON, SVG or PNG."""
    found = uncertainty_of(query.view(state), state.seed)
    if found.reason == "bins_not_exact":
        raise CalibrationInputError.at("/bins", "bins_not_exact", found.detail or "")
    return found
