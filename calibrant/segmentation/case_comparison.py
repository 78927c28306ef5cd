"""Comparison of two models over the same cases: whether the error of one is larger.

The paired t-test is the paper's. Errors of cases are skewed and often few. So Wilcoxon's signed-rank test and a permutation
test of signs are also reported; they do not require a normal distribution.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.core.arrays import Floats
from calibrant.core.documents import Result, Row
from calibrant.inference.seeds import SEED
from calibrant.segmentation.case_errors import ERRORS, CaseErrors, numbers

STARS = ((0.01, "**"), (0.05, "*"))
# With so few pairs all 2^n patterns of signs are enumerated.
MAX_EXACT = 12
N_FLIPS = 9999
# A standard deviation below the rounding error of the errors counts as 0.
CONSTANT = 1e-12


def compare_cases(
    values: Mapping[str, float | None], against: Mapping[str, float | None], seed: int = SEED
) -> Result:
    """Run two-sided paired tests of two models' errors over the cases that both have.

    Parameters
    ----------
    values, against : case name to an error, such as `mean` of `ace` in `cases_of`'s cases; None is left out
    seed : of the permutations, if there are too many to enumerate

    Returns
    -------
    dict with n, `mean`, `against`, `difference` (values minus against), `sd_difference` (ddof 1); the t-test's `t`,
    `degrees_of_freedom`, `p` and `stars` (** below .01, * below .05); `wilcoxon_p`, `permutation_p` (of the mean
    difference, signs exchanged); the cases that only one of them has; and `reason` if there is no test: fewer than
    two pairs, or differences all equal.

    Source
    ------
    Student (Biometrika 1908); Barfoot et al., table 1, per-case means over classes. Wilcoxon (Biometrics 1945);
    Fisher, The Design of Experiments (1935), for the permutation.

    Examples
    --------
    >>> compare_cases({"a": 0.2, "b": 0.2, "c": 0.5}, {"a": 0.1, "b": 0.2, "c": 0.3})["n"]
    3
    """
    one = {name: value for name, value in values.items() if value is not None}
    two = {name: value for name, value in against.items() if value is not None}
    both = sorted(one.keys() & two.keys())
    mine = np.array([one[name] for name in both], np.float64)
    theirs = np.array([two[name] for name in both], np.float64)
    only = {
        "only_here": sorted(one.keys() - two.keys()),
        "only_there": sorted(two.keys() - one.keys()),
    }
    return _compared(mine, theirs, seed) | only


def compare_case_errors(mine: CaseErrors, theirs: CaseErrors, seed: int = SEED) -> Result:
    """Run `compare_cases` for every error and for Dice, and by class.

    Parameters
    ----------
    mine, theirs : under the same query of the same classes. Both models store the same cases by name, because the selection
        depends on the names alone
    seed : as in `compare_cases`

    Returns
    -------
    dict by measure, each as `compare_cases`, with `by_class`: the same for each counted class without the cases' names
    and the permutation.
    """
    result = {}
    for name in (*ERRORS, "dice"):
        values, against = (
            dict(zip(each.names, numbers(each.by_case(name)), strict=True))
            for each in (mine, theirs)
        )
        result[name] = compare_cases(values, against, seed) | {
            "by_class": _by_class(mine, theirs, name)
        }
    return result


def _by_class(mine: CaseErrors, theirs: CaseErrors, name: str) -> list[Row]:
    sides = [each.by_case_and_class(name) for each in (mine, theirs)]
    both = sorted(set(mine.names) & set(theirs.names))
    rows = [
        side[[each.names.index(case) for case in both]]
        for side, each in zip(sides, (mine, theirs), strict=True)
    ]
    found = []
    for slot, place in enumerate(mine.classes):
        one, two = rows[0][:, slot], rows[1][:, slot]
        known = np.isfinite(one) & np.isfinite(two)
        found.append({"class": mine.class_names[place]} | _compared(one[known], two[known], None))
    return found


def _compared(mine: Floats, theirs: Floats, seed: int | None) -> Result:
    """Return the results for the pairs; without a seed no permutation."""
    n, difference = len(mine), mine - theirs
    result: Result = {
        "n": n,
        "mean": float(mine.mean()) if n else None,
        "against": float(theirs.mean()) if n else None,
        "difference": float(difference.mean()) if n else None,
        "sd_difference": float(difference.std(ddof=1)) if n > 1 else None,
    }
    names = (
        "t",
        "degrees_of_freedom",
        "p",
        "wilcoxon_p",
        *(() if seed is None else ("permutation_p",)),
    )
    result |= {**dict.fromkeys(names), "stars": ""}
    if n < 2:
        return result | {"reason": "too_few_cases"}
    if np.ptp(difference) <= CONSTANT:
        return result | {"reason": "constant_difference"}
    statistic, p_value = _paired_t(difference)
    result |= {
        "t": statistic,
        "degrees_of_freedom": n - 1,
        "p": p_value,
        "wilcoxon_p": _wilcoxon(difference),
        "stars": next((mark for level, mark in STARS if p_value < level), ""),
    }
    return result if seed is None else result | {"permutation_p": permutation_p(difference, seed)}


def _paired_t(difference: Floats) -> tuple[float, float]:
    """Return Student's t of paired differences, and its two-sided p."""
    n = len(difference)
    statistic = float(difference.mean() / np.sqrt(difference.var(ddof=1) / n))
    return statistic, float(2.0 * scipy.special.stdtr(n - 1, -abs(statistic)))


def _wilcoxon(difference: Floats) -> float:
    """Return Wilcoxon's p; differences of 0 are left out, those within rounding are tied; exact for up to 50 without ties."""
    moved = np.round(difference / CONSTANT) * CONSTANT
    return float(scipy.stats.wilcoxon(moved[moved != 0.0]).pvalue)


def permutation_p(difference: Floats, seed: int = SEED) -> float:
    """Return the two-sided p of a mean of paired differences by random exchange of their signs.

    Parameters
    ----------
    difference : float64 (n,)
    seed : of 9999 random patterns of signs, for more than 12 pairs; else all patterns are enumerated

    Examples
    --------
    >>> permutation_p(np.array([1.0, 1.0, 1.0]))
    0.25
    """
    n = len(difference)
    observed = abs(float(difference.sum()))
    if n <= MAX_EXACT:
        flipped: NDArray[Any] = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
        return float(_at_least(flipped, difference, observed).mean())
    flipped = np.unpackbits(_random_bytes(seed, N_FLIPS * n), count=N_FLIPS * n).reshape(N_FLIPS, n)
    return float((1 + _at_least(flipped, difference, observed).sum()) / (N_FLIPS + 1))


def _at_least(flipped: NDArray[Any], difference: Floats, observed: float) -> NDArray[np.bool_]:
    """Return which patterns of flipped signs give as large a sum; equal sums may differ by rounding."""
    sums = difference.sum() - 2.0 * (flipped @ difference)
    return np.asarray(np.abs(sums) >= observed * (1.0 - 1e-12))


def _random_bytes(seed: int, n_bits: int) -> NDArray[np.uint8]:
    return np.frombuffer(np.random.default_rng(seed).bytes(-(-n_bits // 8)), np.uint8)
