"""What `ml1_ece`, `ml1_ace` and `ml1_mce` share: an error of each case and class, averaged over cases, with an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.core.view import View
from calibrant.metrics.base import Estimate, Metric
from calibrant.segmentation.case_errors import CaseErrors, case_errors

INTERVAL_METHOD = "Student's t over cases"


@dataclass(frozen=True)
class CaseMetric(Metric):
    """An error of each case and class, averaged as requested. `error` and `also` are names in `ERRORS`."""

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
        extra: dict[str, Any] = {
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
        interval, about = self._interval(cases, average, view.pane_query.ci)
        reason = None if requested["value"] is not None else "no_case_counts"
        return Estimate(requested["value"], reason, interval=interval, extra=extra | about)

    def _interval(
        self, cases: CaseErrors, average: str, ci: float
    ) -> tuple[tuple[float, float] | None, dict[str, Any]]:
        if average != "macro":
            return None, {"interval_reason": "cases_in_one_pot"}
        values = cases.by_case(self.error)
        return mean_interval(values[np.isfinite(values)], ci)


def mean_interval(
    values: NDArray[np.float64], ci: float
) -> tuple[tuple[float, float] | None, dict[str, Any]]:
    """Return the interval of a mean over cases of shares, (n,), and how it was made; None, with the reason, for fewer than two."""
    if len(values) < 2:
        return None, {"interval_reason": "too_few_cases"}
    reach = (
        scipy.stats.t.ppf(0.5 + ci / 2.0, len(values) - 1)
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
