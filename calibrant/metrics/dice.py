"""Dice over cases: overlap of the top class with the reference, reported together with marginal errors.

A class that neither has is 0/0 in the printed formula and is left out of the mean; one that only one of them has counts 0.
"""

from __future__ import annotations

import numpy as np

from calibrant.core.view import View
from calibrant.metrics.base import Estimate, FunctionMetric
from calibrant.metrics.case_metric import interval_over_cases
from calibrant.segmentation.case_errors import case_errors, spread
from calibrant.segmentation.case_options import BACKGROUND, MISSING_CLASS, REGIONS


def read(view: View, seed: int) -> Estimate:
    """Return the mean over classes, then over cases."""
    cases = case_errors(view)
    values = cases.by_case("dice")
    values = values[np.isfinite(values)]
    interval, about = interval_over_cases(values, cases, view)
    extra = {
        "background": cases.options.background,
        "missing": cases.options.missing,
        "n_cases": cases.n_cases["n"],
        "n_cases_kept": cases.n_cases["kept"],
        "n_cases_estimated": cases.n_cases["estimated"],
        "n_cases_used": len(values),
    }
    extra |= spread(values) | about | {"null_reason": "not_simulated"}
    if not len(values):
        return Estimate(None, "no_case_counts", extra=extra)
    return Estimate(float(values.mean()), interval=interval, extra=extra)


METRIC = FunctionMetric(
    slug="dice",
    title="Dice over cases",
    unit="share",
    direction="higher",
    needs=("cases",),
    formula="mean over cases and classes of 2|A∩B| / (|A| + |B|)",
    search_words={"Dice similarity coefficient": "", "F1 of masks": ""},
    source="Dice (Ecology 1945); Barfoot et al., table 1",
    options=("composites",),
    own_options=(BACKGROUND, MISSING_CLASS, REGIONS),
    compute=read,
)
