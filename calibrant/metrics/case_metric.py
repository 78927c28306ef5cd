"""Errors of cases: an error of each case and class, or their Dice, averaged over cases, with an interval.

A class that neither prediction nor reference has is 0/0 in the printed formula of Dice and is left out of its mean; one that only one of
them has counts 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from calibrant.core.arrays import Floats
from calibrant.core.documents import Extra
from calibrant.core.query import Option
from calibrant.core.view import View
from calibrant.inference.gap_uncertainty import has_named_units
from calibrant.metrics.base import Estimate, FunctionMetric, Metric
from calibrant.segmentation.case_errors import CaseErrors, case_errors, spread
from calibrant.segmentation.case_options import (
    BACKGROUND,
    CASE_OPTIONS,
    MISSING_CLASS,
    REGIONS,
)

INTERVAL_METHOD = "Student's t over cases, also with a further case like the smallest or like the largest: the outer ends"
# With fewer cases, intervals of skewed errors contained the true mean in .90 to .92 of the runs.
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
        values = cases.by_case(self.error)
        return interval_over_cases(values[np.isfinite(values)], cases, view)


def interval_over_cases(
    values: Floats, cases: CaseErrors, view: View
) -> tuple[tuple[float, float] | None, Extra]:
    """Return the interval of a mean over cases of shares, (n,), and how it was made; None, with the reason, where there is none.

    Cases count as independent. Where there are fewer named units than cases, some unit has several, such as two scans of a patient:
    which ones is not stored, so there is no interval.
    """
    if len(values) < ENOUGH:
        return None, {"interval_reason": "too_few_cases"}
    if has_named_units(view) and view.counts["n_units"] < cases.n_cases["n"]:
        return None, {"interval_reason": "units_of_several_cases"}
    if np.ptp(values) <= CONSTANT:
        return None, {"interval_reason": "equal_cases"}
    return mean_of_shares(values, view.pane_query.ci), {"interval_method": INTERVAL_METHOD}


def mean_of_shares(values: Floats, ci: float) -> tuple[float, float]:
    """Return the interval of the mean of shares from 0 to 1.

    Shares of cases are often skewed: small in most, large in few. Student's interval then ends too early on the side of the few. So each
    end is also computed with one further case, whose value is the smallest or the largest, and the outer end counts. The further case is no
    information: degrees of freedom and the root of n are those of the cases.

    Parameters
    ----------
    values : (n,), one per case
    ci : level of confidence

    Examples
    --------
    >>> [round(end, 3) for end in mean_of_shares(np.array([0.1] * 9 + [0.5]), 0.95)]
    [0.05, 0.288]
    """
    low, high = _student(values, len(values), ci)
    low = min(low, _student(np.append(values, values.min()), len(values), ci)[0])
    high = max(high, _student(np.append(values, values.max()), len(values), ci)[1])
    return max(low, 0.0), min(high, 1.0)


def _student(values: Floats, n: int, ci: float) -> tuple[float, float]:
    """Return Student's interval of the mean of values from n cases."""
    quantile = float(scipy.special.stdtrit(n - 1, 0.5 + ci / 2.0))
    reach = quantile * float(values.std(ddof=1)) / n**0.5
    return float(values.mean()) - reach, float(values.mean()) + reach


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
