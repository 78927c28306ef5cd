"""The fields of an estimate in a response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from calibrant.results.base import Result, may_say


@dataclass(frozen=True, kw_only=True, repr=False)
class EstimateValues(Result):
    """One estimate: null with a reason if there is none."""

    value: float | None
    interval: list[float | None] | None = None
    interval_of: str | None = may_say(
        "What the interval contains with the requested probability. The estimate can be above it."
    )
    corrected: float | None = may_say(
        "The true value of which the estimate is the median; the interval is that of `corrected`."
    )
    bias: str | None = may_say(
        "`biased upward at this n` where more than a tenth of the value is due to chance."
    )
    range: list[float] | None = may_say(
        "Without an interval: the spread of resampled units, which contains the true value less often than `ci`."
    )
    range_caution: str | None = may_say("Why `range` is not an interval.")
    n_effective: float | None = may_say(
        "Kish's effective number of independent samples: weights and dependent units lower it."
    )
    tolerance_verdict: Literal["within_tolerance", "outside", "not_shown"] | None = may_say(
        "With `tolerance`: whether the complete interval is below or above it."
    )
    null_mean: float | None = None
    null_q95: float | None = None
    null_q95_error: float | None = may_say(
        "Standard error of `null_q95` from the number of draws; 0: closed form."
    )
    above_null: bool | None = may_say(
        "Whether the value is above `null_q95`; null within twice its standard error."
    )
    null_worst_case: dict[str, Any] | None = may_say(
        "`mean` and `q95` of a calibrated model if all predictions of a unit were fully dependent; only if units were named."
    )
    design_effect: float | None = may_say(
        "Variance of the gaps relative to independent predictions, under the null."
    )
    null_replicates: int | None = may_say(
        "Replicates that contain units. The null reference is promised from 20 on, returned from 12."
    )
    n: int | None = None
    n_ratings: int | None = None
    reason: str | None = may_say()
    error_bound: float | None = may_say("Largest error that cells can cause.")
    error_estimate: float | None = may_say("Error to expect from cells.")
    error_bound_reason: str | None = may_say("Why cells give no `error_bound`.")
