"""Disagreement of raters that a prediction implies, under a given temperature and concentration of a Dirichlet.

A Dirichlet of concentration alpha0 around softmax(z / T) predicts that two raters differ with probability
alpha0 / (alpha0 + 1) (1 - sum p^2). Fitted on other data, both are numbers of a request: so one set fits and another scores.

Source: Mimori, Sasada, Matsui, Sato (AISTATS 2021), eq. 17 and Table 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibrant.accumulators.rater_pairs import DISAGREEMENT_GRID, MOMENTS
from calibrant.calibrators.labelled_rows import log_probabilities
from calibrant.core.pane import Pane
from calibrant.core.query import Option
from calibrant.core.routing import split_batch
from calibrant.core.view import NoResultError, View
from calibrant.raters.disagreement_tables import (
    DisagreementTable,
    disagreement_table,
    table_of_cells,
    table_of_rows,
)
from calibrant.raters.label_losses_by_row import reject_single_ratings
from calibrant.raters.label_rows import label_rows

CONCENTRATION = Option(
    "concentration",
    0.0,
    "alpha0 of a Dirichlet around each prediction, by which its disagreement is predicted. 0: no Dirichlet.",
    low=0.0,
    high=1e12,
)
TEMPERATURE = Option(
    "temperature",
    1.0,
    "Divisor of the logits, applied first. Values other than 1 need raw rows.",
    low=1.0 / 32.0,
    high=32.0,
)
# In nats below the largest logit: exactly 0 as a probability, at every temperature.
_IMPOSSIBLE = -1e7


@dataclass(frozen=True)
class Belief:
    """A temperature and a concentration; 0 is no concentration."""

    concentration: float = 0.0
    temperature: float = 1.0

    @classmethod
    def of(cls, view: View) -> Belief:
        """Read the belief of a query.

        Raises
        ------
        CalibrationInputError
            A value outside its range.
        """
        pane_query = view.pane_query
        return cls(float(CONCENTRATION.of(pane_query)), float(TEMPERATURE.of(pane_query)))

    @property
    def factor(self) -> float:
        """Factor of the disagreement that the prediction alone predicts."""
        alpha = self.concentration
        return alpha / (alpha + 1.0) if alpha else 1.0

    @property
    def named(self) -> dict[str, float | None]:
        """Both, as named in a response."""
        return {"concentration": self.concentration or None, "temperature": self.temperature}


def tempered(view: View) -> View:
    """Return the view of the predictions at the query's temperature; the view itself at 1.

    Raises
    ------
    NoResultError
        Another temperature without raw rows (`needs_raw_rows`).
    """
    temperature = Belief.of(view).temperature
    if temperature == 1.0:
        return view
    if view.batch_sums is None:
        detail = "stored cells are of the predictions as sent: post the rows to score them at another temperature"
        raise NoResultError("needs_raw_rows", detail)
    complete = view.batch_sums.complete_batch

    def make() -> View:
        logs = complete.scores if complete.is_logits else log_probabilities(complete)
        scores = np.maximum(logs - logs.max(axis=1, keepdims=True), _IMPOSSIBLE) / temperature
        batch = replace(complete, scores=scores, is_logits=True)
        pane = Pane(view.spec)
        for part in split_batch(batch):
            pane.fill_batch(part)
        return View(pane, view.pane_query, batch)

    return view.once(("tempered", temperature), make).with_query(view.pane_query)


def calibrated_table(
    view: View, factor: float, by_ratings: bool = False
) -> tuple[DisagreementTable, float]:
    """Return the query's bins of the calibrated prediction, factor (1 - sum p^2), and the error to expect of its error.

    From raw rows it is exact. Stored cells are in the bin of their mean; see `table_of_cells` for the error.

    Raises
    ------
    NoResultError
        No prediction has two ratings, or bins that are no divisor of 120.
    """
    bins, edges = view.pane_query.bins, view.pane_query.edges
    if factor == 1.0:
        return disagreement_table(view, by_ratings), 0.0
    reject_single_ratings(view)
    if view.batch_sums is not None:
        rows = label_rows(view.batch_sums)
        several = rows.several
        weight = view.batch_sums.weights * (rows.n_ratings if by_ratings else 1.0)
        table = table_of_rows(
            np.clip(factor * rows.predicted[several], 0.0, 1.0),
            rows.disagreement[several],
            bins,
            edges,
            weight=weight[several],
        )
        return table, 0.0
    block = view.pane["disagreement"].blocks["cells"]
    columns = block.sums.reshape(2, len(MOMENTS), -1)[int(by_ratings)]
    count = block.counts[0].astype(np.float64)
    scaled = columns.copy()
    for name, power in (("predicted", 1), ("predicted_squared", 2), ("product", 1)):
        scaled[MOMENTS.index(name)] *= factor**power
    weight, predicted = scaled[MOMENTS.index("weight")], scaled[MOMENTS.index("predicted")]
    lower, upper = DISAGREEMENT_GRID.lower * factor, DISAGREEMENT_GRID.upper * factor
    mean = np.divide(predicted, weight, out=(lower + upper) / 2.0, where=weight > 0)
    inward = np.minimum(1e-9, (upper - lower) / 2.0)
    at = (np.clip(mean, lower, upper), lower + inward, upper - inward)
    return table_of_cells(at, count, scaled, bins, edges)
