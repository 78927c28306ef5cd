"""Errors of cases: an error of each case and class, or their Dice, averaged over cases, with an interval.

A class that neither prediction nor reference has is 0/0 in the printed formula of Dice and is left out of its mean; one that only one of
them has counts 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from calibrant.core.arrays import Floats, Ints
from calibrant.core.documents import Extra
from calibrant.core.query import Option
from calibrant.core.view import View
from calibrant.inference.gap_uncertainty import has_named_units
from calibrant.metrics.metric import Estimate, FunctionMetric, Metric
from calibrant.segmentation.case_errors import CaseErrors, case_errors, spread
from calibrant.segmentation.case_options import (
    BACKGROUND,
    CASE_OPTIONS,
    MISSING_CLASS,
    REGIONS,
)

INTERVAL_METHOD = "Student's t over cases, also with a further case like the smallest or like the largest: the outer ends"
INTERVAL_METHOD_UNITS = "Student's t over units of several cases, also with a further unit like the smallest or like the largest: the outer ends"
# With fewer cases or units, intervals of skewed errors contained the true mean in .90 to .92 of the runs.
ENOUGH = 10
# Values that differ by less than rounding are equal.
CONSTANT = 1e-12


@dataclass(frozen=True)
class CaseMetric(Metric):
    """An error of each case and class, averaged as requested. `error` and `also` are names in `ERRORS`."""

    needs: tuple[str, ...] = ("cases",)
    options: tuple[str, ...] = ("bins", "edges", "composites")
    own_options: tuple[Option, ...] = CASE_OPTIONS
    error: str = ""
    also: tuple[str, ...] = ()

    def estimate(self, view: View, seed: int) -> Estimate:
        """Return the requested average, with the other averages as further values."""
        cases = case_errors(view)
        average = cases.options.average
        results = {"macro": cases.macro(self.error)}
        results |= {"micro": cases.micro(self.error, pooled=False)}
        results |= {"micro_pooled": cases.micro(self.error, pooled=True)}
        requested = results[average]
        extra: Extra = {
            "average": average,
            "membership": cases.options.membership,
            "background": cases.options.background,
            "missing": cases.options.missing,
            "bins": view.pane_query.bins,
            "edges": view.pane_query.edges,
            "n_cases": cases.n_cases["n"],
            "n_cases_kept": cases.n_cases["kept"],
            "n_cases_estimated": cases.n_cases["estimated"],
            "n_cases_used": requested["n"],
            "n_missing": cases.n_missing,
            "classes": [cases.class_names[k] for k in cases.classes],
            "by_class": requested["by_class"],
            "sd": results["macro"]["sd"],
            "quantiles": results["macro"]["quantiles"],
        }
        extra |= {name: result["value"] for name, result in results.items()}
        extra |= {name: _averaged(cases, name, average) for name in self.also}
        bound = cases.bound(self.error)
        if bound:
            extra["error_bound"] = bound
        interval, about = self._interval(cases, average, view)
        reason = None if requested["value"] is not None else "no_case_counts"
        return Estimate(requested["value"], reason, interval=interval, extra=extra | about)

    def _interval(
        self, cases: CaseErrors, average: str, view: View
    ) -> tuple[tuple[float, float] | None, Extra]:
        if average != "macro":
            return None, {"interval_reason": "cases_pooled"}
        return interval_over_cases(self.error, cases, view)


def interval_over_cases(
    name: str, cases: CaseErrors, view: View
) -> tuple[tuple[float, float] | None, Extra]:
    """Return the interval of the mean over cases of an error or "dice", and how it was made; None, with the reason, where there is none.

    Cases of one unit, such as two scans of a patient, count together; a case of several units, or of none, counts as a unit. State from
    before units of cases were stored does not have them: where there are then fewer named units than cases, there is no interval.
    """
    has_several = has_named_units(view) and view.counts["n_units"] < cases.n_cases["n"]
    if has_several and not cases.units:
        return None, {"interval_reason": "units_of_several_cases"}
    values = cases.by_case(name)
    known = np.isfinite(values)
    return interval_by_units(values[known], _units(cases)[known], view.pane_query.ci)


def interval_by_units(
    values: Floats, unit: Ints, ci: float
) -> tuple[tuple[float, float] | None, Extra]:
    """Return the interval of the mean of values of cases, (n,), whose units have numbers, (n,), as `interval_over_cases` does."""
    unit = np.unique(unit, return_inverse=True)[1]
    n_units = int(unit.max(initial=-1)) + 1
    if n_units < ENOUGH:
        few = "too_few_cases" if len(values) < ENOUGH else "too_few_units"
        return None, {"interval_reason": few}
    if np.ptp(values) <= CONSTANT:
        return None, {"interval_reason": "equal_cases"}
    method = INTERVAL_METHOD if n_units == len(values) else INTERVAL_METHOD_UNITS
    return mean_of_shares(values, unit, ci), {"interval_method": method}


def _units(cases: CaseErrors) -> Ints:
    """Return the unit of each case as a number from 0."""
    places: dict[int | str, int] = {}
    units = (cases.units.get(name) or name for name in cases.names)
    return np.array([places.setdefault(unit, len(places)) for unit in units], np.int64)


def mean_of_shares(values: Floats, unit: Ints, ci: float) -> tuple[float, float]:
    """Return the interval of the mean of shares from 0 to 1.

    Shares of cases are often skewed: small in most, large in few. Student's interval then ends too early on the side of the few. So each
    end is also computed with one further unit of mean size, whose mean is the smallest or the largest, and the outer end counts. The further
    unit is no information: degrees of freedom and the root of n are those of the units.

    Parameters
    ----------
    values : (n,), one per case
    unit : int64 (n,), of each case, from 0
    ci : level of confidence

    Source
    ------
    Bell, McCaffrey (Survey Methodology 2002), for the error and the degrees of freedom with units of several cases.

    Examples
    --------
    >>> [round(end, 3) for end in mean_of_shares(np.array([0.1] * 9 + [0.5]), np.arange(10), 0.95)]
    [0.05, 0.288]
    """
    size, total = (np.bincount(unit, each).astype(np.float64) for each in (None, values))
    means = total / size
    quantile = float(scipy.special.stdtrit(_degrees(size / size.sum()), 0.5 + ci / 2.0))
    low, high = _student(total, size, quantile)
    more = np.append(size, size.mean())
    further = (1.0 + 1.0 / len(size)) ** 0.5 * quantile
    low = min(low, _student(np.append(total, means.min() * more[-1]), more, further)[0])
    high = max(high, _student(np.append(total, means.max() * more[-1]), more, further)[1])
    return max(low, 0.0), min(high, 1.0)


def _degrees(share: Floats) -> float:
    """Return the degrees of freedom of the error of a mean from the units' shares of the cases: their number less 1 if all are equal."""
    tied = share**2 / (1.0 - share)
    return float(1.0 / ((share**2).sum() + tied.sum() ** 2 - (tied**2).sum()))


def _student(total: Floats, size: Floats, quantile: float) -> tuple[float, float]:
    """Return the mean of cases less and plus a multiple of its standard error, from the total and number of cases of each unit."""
    n = size.sum()
    mean, share = float(total.sum() / n), size / n
    error = float(np.sqrt(((total - mean * size) ** 2 / (1.0 - share)).sum()) / n)
    return mean - quantile * error, mean + quantile * error


def _averaged(cases: CaseErrors, name: str, average: str) -> float | None:
    if average == "macro":
        value = cases.macro(name)["value"]
    else:
        value = cases.micro(name, pooled=average == "micro_pooled")["value"]
    return None if value is None else float(value)


def dice_over_cases(view: View, seed: int) -> Estimate:
    """Return the mean over classes, then over cases."""
    cases = case_errors(view)
    values = cases.by_case("dice")
    values = values[np.isfinite(values)]
    interval, about = interval_over_cases("dice", cases, view)
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


METRICS = (
    CaseMetric(
        slug="ml1_ece",
        title="Marginal L1 expected calibration error over cases",
        formula="mean over cases and classes of Σ_m (n_m/N) |freq(m) - conf(m)|",
        search_words={"mL1-ECE": "", "marginal L1 ECE": ""},
        source="Barfoot et al., eq. 2",
        error="ece",
    ),
    CaseMetric(
        slug="ml1_ace",
        title="Marginal L1 average calibration error over cases",
        formula="mean over cases and classes of (1/|B|) Σ_{m in B} |freq(m) - conf(m)|",
        search_words={
            "mL1-ACE": "",
            "marginal L1 ACE": "",
            "hL1-ACE": "membership=hard in brackets",
            "sL1-ACE": "membership=soft in brackets",
        },
        source="Barfoot et al., eq. 3, over non-empty bins as in their code; as printed in `ace_all_bins`",
        error="ace",
        also=("ace_all_bins",),
    ),
    CaseMetric(
        slug="ml1_mce",
        title="Marginal L1 maximum calibration error over cases",
        formula="mean over cases and classes of max_m |freq(m) - conf(m)|",
        search_words={"mL1-MCE": "", "marginal L1 MCE": ""},
        source="Barfoot et al., eq. 4",
        error="mce",
    ),
    FunctionMetric(
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
        compute=dice_over_cases,
    ),
)
