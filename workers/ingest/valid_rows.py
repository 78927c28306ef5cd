"""Whether rows have only values that every accumulator is defined for, so that a fill of them cannot fail.

The service has checked them by the same rules, and a tail stores rows without filling them. The joined rows of a time slice are
checked here; if they do not pass they are filled once before they are stored: the fill decides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import DELAY_BINS, UNKNOWN
from calibrant.core.spec import PaneSpec
from calibrant.input.columns import MAX_WEIGHT, MIN_WEIGHT
from calibrant.input.score_columns import MAX_LOGIT
from calibrant_server.workers.segments.row_codec import columns_fit
from calibrant_server.workers.segments.rows import Rows

# Probabilities were divided by their sum where that was further from 1 than `calibrant.input.row_sums.SUM_EXACT`.
MAX_SUM_ERROR = 1e-6
Floats = NDArray[np.float64]


def are_valid_rows(rows: Rows, spec: PaneSpec) -> bool:
    """Return whether rows fill panes of a specification."""
    fixed, scores = rows.fixed, rows.scores.values
    return (
        (rows.task, scores.shape[1]) == (spec.task, spec.n_classes)
        and columns_fit(rows)
        and _logits_fit(scores[fixed["is_logits"]])
        and _probabilities_fit(scores[~fixed["is_logits"]])
        and _weights_fit(fixed["weight"])
        and bool(((fixed["delay"] >= UNKNOWN) & (fixed["delay"] < DELAY_BINS)).all())
    )


# With nan among the values no comparison holds.
def _logits_fit(scores: Floats) -> bool:
    return bool(
        scores.max(initial=-MAX_LOGIT) <= MAX_LOGIT and scores.min(initial=MAX_LOGIT) >= -MAX_LOGIT
    )


def _probabilities_fit(scores: Floats) -> bool:
    totals = np.einsum("ij->i", scores)
    return bool(
        scores.min(initial=0.0) >= 0.0
        and scores.max(initial=0.0) <= 1.0
        and (np.abs(totals - 1.0) <= MAX_SUM_ERROR).all()
    )


def _weights_fit(weights: Floats) -> bool:
    return bool(((weights == 0) | ((weights >= MIN_WEIGHT) & (weights <= MAX_WEIGHT))).all())
