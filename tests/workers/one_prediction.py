"""One stored prediction at a time; the product packs and decodes many together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.workers.oracle.retained_prediction import (
    Prediction,
    PredictionColumns,
    Slices,
    scores_of,
)


def prediction_of(
    scores: NDArray[np.float64],
    is_logits: bool,
    event_us: int,
    sent: bytes,
    weight: float | None = None,
    unit: str | None = None,
    case: str | None = None,
    slices: Slices = (),
) -> Prediction:
    """Return one row; `sent` is a digest of its content, to distinguish a repeat from a conflict."""
    columns = PredictionColumns(
        scores[None, :], is_logits, np.array([event_us]), [sent], [weight], [unit], [case], [slices]
    )
    return columns.predictions()[0]


def scores_of_one(prediction: Prediction) -> NDArray[np.float64]:
    """Return the scores of one row."""
    row: NDArray[np.float64] = scores_of([prediction])[0]
    return row
