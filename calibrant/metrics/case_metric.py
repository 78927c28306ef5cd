"""Errors of cases: an error of each case and class, or their Dice, averaged over cases, with an interval.

A class that neither prediction nor reference has is 0/0 in the printed formula of Dice and is left out of its mean; one that only one of
them has counts 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

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

INTERVAL_METHOD = "Student's t over cases"


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
    values: NDArray[np.float64], cases: CaseErrors, view: View
) -> tuple[tuple[float, float] | None, Extra]:
    """Return the interval of a mean over cases of shares, (n,), and how it was made; None, with the reason, where there is none.

    Cases count as independent. Where there are fewer named units than cases, some unit has several, such as two scans of a patient:
    which ones is not stored, so there is no interval.
    """
    if len(values) < 2:
        return None, {"interval_reason": "too_few_cases"}
    if has_named_units(view) and view.counts["n_units"] < cases.n_cases["n"]:
        return None, {"interval_reason": "units_of_several_cases"}
    reach = (
        scipy.special.stdtrit(len(values) - 1, 0.5 + view.pane_query.ci / 2.0)
        * values.std(ddof=1)
        / np.sqrt(len(values))
    )
    mean = float(values.mean())
    return (max(mean - reach, 0.0), min(mean + reach, 1.0)), {"interval_method": INTERVAL_METHOD}


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
