"""Which slices of many are miscalibrated: a test of each against its own null, with the errors of all together controlled.

Of thirty calibrated slices, the one with the largest error looks bad by chance, and a small one does so more often. Therefore a slice is
judged by its p-value: the share of draws in which a calibrated model with its predictions has at least its error. Outcomes of a bin are
drawn as a binomial count of its effective number of independent units, so that few errors of confident predictions count as what they are.
By Holm's rule, the probability that any calibrated slice is flagged is at most `LEVEL`, whatever the dependence of the slices.

Source: Holm (Scandinavian Journal of Statistics 1979); the error normalised by its noise as in Guy et al., Measuring multi-calibration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats
from calibrant.core.documents import Result
from calibrant.core.view import NoResultError, View
from calibrant.inference.reliability_table import fully_dependent_units
from calibrant.inference.seeds import SEED

LEVEL = 0.05
METHOD = "Holm's rule over the slices' p-values, which are shares of drawn labels"
# A p-value is at least one of these: with 50,000, one of 2,500 slices can be flagged.
_STEPS = (2_000, 50_000)
_FEW = 20
_TOGETHER = 1 << 18


def calibration_test(view: View, seed: int = SEED) -> Result:
    """Return the test of the error of a view's bins against a calibrated model.

    Returns
    -------
    dict with `statistic`, `p_value` (None with a `reason`: no labels, or histograms without their predictions) and `n_draws`
    """
    try:
        table = view.table()
    except NoResultError as rejection:
        return {"statistic": "ece", "p_value": None, "reason": rejection.reason}
    cells = table.cells.select(table.cells.weight > 0)
    if not len(cells):
        return {"statistic": "ece", "p_value": None, "reason": "no_data"}
    units = np.maximum(np.floor(fully_dependent_units(cells)), 1.0).astype(np.int64)
    score = np.clip(cells.mean, 0.0, 1.0)
    weight = cells.weight / cells.weight.sum()
    p, n_draws = _p_value(float(weight @ np.abs(cells.gap)), weight, units, score, seed)
    return {"statistic": "ece", "p_value": p, "n_draws": n_draws}


def _p_value(
    observed: float, weight: Floats, units: NDArray[np.int64], score: Floats, seed: int
) -> tuple[float, int]:
    """Return the share of draws with at least the observed error, the observed one included, and their number."""
    draws, reached, n = np.random.default_rng(seed), 0, 0
    for most in _STEPS:
        while n < most and (most == _STEPS[0] or reached < _FEW):
            size = min(most - n, max(_TOGETHER // len(weight), 1))
            rate = draws.binomial(units, score, (size, len(units))) / units
            errors = np.abs(rate - score) @ weight
            reached, n = reached + int((errors >= observed - 1e-12).sum()), n + size
    return (1.0 + reached) / (1.0 + n), n


def slice_test(tests: Mapping[str, Mapping[str, Any]], level: float = LEVEL) -> Result:
    """Return which slices are miscalibrated by more than chance among so many explains.

    Parameters
    ----------
    tests : by slice, as `calibration_test` returns them
    level : bound of the probability that a calibrated slice is flagged

    Returns
    -------
    dict with `n_tested`, `level`, `method`; `flagged`, the slices in the order of their evidence; and `worst`, the one with most: its
    name, `p_value` and `p_adjusted`; None if no slice is tested

    Examples
    --------
    >>> found = slice_test({"a": {"p_value": 0.001}, "b": {"p_value": 0.03}, "c": {"p_value": 0.5}, "d": {"p_value": None}})
    >>> found["flagged"], found["n_tested"], found["worst"]
    (['a'], 3, {'slice': 'a', 'p_value': 0.001, 'p_adjusted': 0.003})
    """
    known = {name: float(each["p_value"]) for name, each in tests.items() if each["p_value"]}
    names = sorted(known, key=lambda name: (known[name], name))
    adjusted: dict[str, float] = {}
    for rank, name in enumerate(names):
        before = adjusted[names[rank - 1]] if rank else 0.0
        adjusted[name] = min(max(before, (len(names) - rank) * known[name]), 1.0)
    worst = names[0] if names else None
    return {
        "n_tested": len(names),
        "level": level,
        "method": METHOD,
        "flagged": [name for name in names if adjusted[name] <= level],
        "worst": None
        if worst is None
        else {"slice": worst, "p_value": known[worst], "p_adjusted": adjusted[worst]},
    }


def sentence_of(found: Mapping[str, Any], n_slices: int) -> str:
    """Return what the test says.

    >>> sentence_of(slice_test({"a": {"p_value": 0.4}, "b": {"p_value": 0.9}}), 3)
    '2 of 3 subgroups were tested together. None of them is shown to be miscalibrated. The strongest sign is for a (p = 0.8, \
adjusted for the number of tests). If all were calibrated, the chance to name any would be at most 5 %.'
    """
    worst, flagged = found["worst"], found["flagged"]
    start = f"{found['n_tested']} of {n_slices} subgroups were tested together."
    if worst is None:
        return start
    level = f"If all were calibrated, the chance to name any would be at most {100 * found['level']:g} %."
    if not flagged:
        return (
            f"{start} None of them is shown to be miscalibrated. The strongest sign is for {worst['slice']} "
            f"(p = {worst['p_adjusted']:.2g}, adjusted for the number of tests). {level}"
        )
    named = ", ".join(flagged[:10]) + (", …" if len(flagged) > 10 else "")
    return f"{start} Chance does not explain the errors of {len(flagged)} of them: {named}. {level}"
