"""The temperature that fits a window's labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

from pydantic import Field

from calibrant.calibrators.recommendation import CandidateComparison
from calibrant.calibrators.temperature.fit import check_ece_bins, fit_temperature
from calibrant.core.documents import Result
from calibrant.core.query import PaneQuery, default_bins
from calibrant.core.view import View
from calibrant.inference.temperature_differences import temperature_difference
from calibrant_server.workers.queries.kind import (
    Against,
    Inputs,
    ResultKind,
    other_side,
    reject_other_classes,
)
from calibrant_server.workers.queries.query import (
    CI,
    MIN_COUNT,
    Including,
    Query,
    Raters,
    include_field,
)
from calibrant_server.workers.queries.weights import WEIGHTS, Weighted, Weights, weighted
from calibrant_server.workers.queries.window_state import SAMPLE, SAMPLE_OF_FEW
from calibrant_server.workers.store.model_config import ModelConfig

PARTS = ("recommendation", "heldout", "curve")


class TemperatureQuery(Including):
    """What the temperature is fitted to."""

    kind: ClassVar[str] = "temperature"
    parts: ClassVar[tuple[str, ...]] = PARTS

    objective: Literal["nll", "brier", "ece"] = Field(
        "nll", description="Loss that the temperature minimises."
    )
    raters: Raters = "pooled"
    bins: int = Field(15, ge=1, le=60, description="Equal-width bins of the ECE; a divisor of 60.")
    min_count: float = MIN_COUNT
    ci: float = CI
    weights: Weights = WEIGHTS
    include: str | None = include_field(PARTS)

    def resolved(self, config: ModelConfig) -> Query:
        check_ece_bins(self.bins)
        return self.own(include=self.canonical_include())


def accumulators(query: TemperatureQuery) -> Iterable[str]:
    """Counts, plain histograms (which give no temperature: the result states it), the profile and the stored sample.

    Of many rows, the sample only serves a fit in which units weigh one. Cells of the score show whether all weights are equal.
    """
    sample = SAMPLE if query.weights == "unit" else SAMPLE_OF_FEW
    return ("counts", "histograms", "temperature", "top_label", "positive", sample)


def compute(query: TemperatureQuery, inputs: Inputs) -> Result:
    """Temperature, standard error, losses before and after; the requested parts."""
    return _fitted(query, weighted(inputs, query))


def _fitted(query: TemperatureQuery, inputs: Weighted) -> Result:
    pane = inputs.pane
    found = fit_temperature(
        pane,
        objective=query.objective,
        raters=query.raters,
        ci=query.ci,
        bins=query.bins,
        min_count=query.min_count,
        rows_if_complete=True,
    )
    found |= inputs.about
    if "curve" not in query.included:
        found.pop("curve", None)
    if not {"recommendation", "heldout"} & query.included:
        return found
    view = View(pane, PaneQuery(bins=default_bins(pane.spec), raters=query.raters, ci=query.ci))
    candidates = CandidateComparison(view)
    if "heldout" in query.included:
        found |= candidates.held_out_temperature(
            query.objective, bins=query.bins, min_count=query.min_count
        )
    if "recommendation" in query.included:
        found |= candidates.recommended()
    return found


def compare(query: TemperatureQuery, inputs: Inputs, other: Inputs, against: Against) -> Result:
    """The same, with the other side's temperature, the difference and the ratio."""
    reject_other_classes(inputs.config, other.config)
    plain = query.own(include=None)
    own, others = weighted(inputs, query), weighted(other, query)
    mine, theirs = _fitted(query, own), _fitted(plain, others)
    found = temperature_difference(mine, theirs, own.pane, others.pane)
    fitted = found.pop("against")
    del found["shared"]
    return mine | found | {"against": other_side(against, inputs.pane, other) | fitted}


KIND = ResultKind(TemperatureQuery, compute, accumulators, compare)
