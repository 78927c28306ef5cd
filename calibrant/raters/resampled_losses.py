"""Losses of label uncertainty on many resamples of raw rows at once, for stability curves and bootstraps.

`times` says how often each labelled row is taken, float64 (n_resamples, n). Copies of a row are predictions of their own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibrant.accumulators.rater_pairs import MOMENTS
from calibrant.core.arrays import Floats, Ints, ratio
from calibrant.core.batch_sums import BatchSums
from calibrant.core.grid import equal_width_bin
from calibrant.core.view import View
from calibrant.raters.belief import Belief, tempered
from calibrant.raters.disagreement_tables import DisagreementTable, moments_of
from calibrant.raters.label_losses_by_bin import (
    known_variance,
    mean_variance,
    share_variance,
    squares_about,
)
from calibrant.raters.label_losses_by_row import Choice
from calibrant.raters.label_rows import label_rows


def calibration_losses(view: View, times: Floats) -> Floats:
    """Return the debiased calibration loss of each resample, (n_resamples,); nan without weight."""
    batch_sums, by_ratings = _filling(view), Choice.of(view).by_ratings
    share = batch_sums.batch.label_counts / batch_sums.n_ratings[:, None]
    weight = batch_sums.weights * (batch_sums.n_ratings if by_ratings else 1.0)
    result = np.zeros(len(times))
    for class_index, score in enumerate(batch_sums.columns):
        rate = share[:, class_index]
        total = _binned(view, score, times)
        at = {
            "predictions": total(np.ones(len(score))),
            "weight": total(weight),
            "confidence": total(weight * score),
            "correct": total(weight * rate),
            "correct_squared": total(weight * rate**2),
            "weight_squared": total(weight**2),
        }
        gap = ratio(at["correct"] - at["confidence"], at["weight"])
        if by_ratings:
            moments = (at["weight_squared"], total(weight**2 * rate), total((weight * rate) ** 2))
            second = squares_about(ratio(at["confidence"], at["weight"]), moments)
            count = np.rint(at["predictions"]).astype(np.int64)
            variance = mean_variance(at["weight"], gap, moments[0], second, count)
        else:
            variance = share_variance(at)
        variance = known_variance(variance, gap, at["predictions"])
        total_weight = at["weight"].sum(axis=1)
        loss = (at["weight"] * (gap**2 - variance)).sum(axis=1)
        result += ratio(loss, total_weight, np.nan)
    return result


def disagreement_errors(view: View, times: Floats) -> Floats:
    """Return CE_phi of each resample on bins of the prediction itself, (n_resamples,); nan without two ratings."""
    belief, by_ratings = Belief.of(view), Choice.of(view).by_ratings
    view = tempered(view)
    batch_sums = _filling(view)
    rows = label_rows(batch_sums)
    several = rows.several
    score = np.clip(rows.predicted[several], 0.0, 1.0)
    weight = (batch_sums.weights * (rows.n_ratings if by_ratings else 1.0))[several]
    total = _binned(view, score, times[:, several])
    columns = moments_of(score, rows.disagreement[several], np.zeros(len(score)), weight)
    sums = np.stack([total(column) for column in columns])
    count = np.rint(total(np.ones(len(score)))).astype(np.int64)
    found = np.full(len(times), np.nan)
    for i in np.flatnonzero(sums[0].sum(axis=1) > 0):
        table = DisagreementTable(count[i], dict(zip(MOMENTS, sums[:, i], strict=True)))
        found[i] = table.error(belief.factor)
    return found


def _filling(view: View) -> BatchSums:
    assert view.batch_sums is not None
    return view.batch_sums


def _binned(view: View, score: Floats, times: Floats) -> Callable[[Floats], Floats]:
    """Return how a column is summed by resample and equal-width bin of the score, to (n_resamples, bins)."""
    bins = view.pane_query.bins
    place: Ints = equal_width_bin(score, bins, view.pane_query.edges)
    member = (place[:, None] == np.arange(bins)).astype(np.float64)
    return lambda column: times @ (member * column[:, None])
