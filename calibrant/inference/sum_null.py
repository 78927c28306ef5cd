"""Null reference of a mean over predictions where units were named: Brier score and accuracy."""

from __future__ import annotations

import numpy as np
import scipy

from calibrant.accumulators.replicates import NULL_SUMS, SCORE_SUMS
from calibrant.core.batch_sums import N_REPLICATES
from calibrant.core.documents import Extra
from calibrant.core.label_policies import N_POLICIES
from calibrant.core.view import View
from calibrant.inference.gap_uncertainty import worst_case
from calibrant.inference.null_reference import NullReference
from calibrant.inference.unit_null import BY_UNITS, PROMISED_FROM, RETURNED_FROM


def sum_null_of_units(
    view: View, column: str, null_column: str, worst: NullReference
) -> tuple[NullReference | None, Extra]:
    """Return the reference of a mean whose units depend within themselves, and what it is from or why there is none.

    Sums of replicates minus their expectation are independent with mean 0. Their squares give the variance, and Student's t the quantile.

    Parameters
    ----------
    view : View
    column, null_column : sums of the metric, and of its expectation with labels drawn from the predictions
    worst : the reference with fully dependent units
    """
    about = worst_case(worst)
    blocks = view.pane["replicates"].blocks
    nulls = blocks.get("score_nulls")
    n_labelled = view.counts["n_labelled"]
    if nulls is None or int(nulls.counts[0].sum()) < n_labelled * N_POLICIES:
        return None, about | {"null_reason": "units_not_replicated"}
    shape = (-1, N_REPLICATES, N_POLICIES)
    sums = blocks["scores"].sums.reshape(shape)[:, :, view.policy]
    weight = sums[SCORE_SUMS.index("weight")]
    expected = nulls.sums.reshape(shape)[NULL_SUMS.index(null_column), :, view.policy]
    filled = weight > 0
    n = int(filled.sum())
    about["null_replicates"] = n
    if n < RETURNED_FROM:
        return None, about | {"null_reason": "too_few_units"}
    difference = (sums[SCORE_SUMS.index(column)] - expected)[filled]
    error = float(np.sqrt((difference**2).sum() * n / (n - 1.0)))
    reach = float(scipy.special.stdtrit(n - 1.0, 0.95)) * error
    total = float(weight.sum())
    null = NullReference(worst.mean, worst.mean + reach / total, 0.0)
    return null, about | {"null_assumption": BY_UNITS, "null_promised": n >= PROMISED_FROM}
