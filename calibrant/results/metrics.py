"""Any set of metrics over a window."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from calibrant.metrics import DEFAULT_METRICS
from calibrant.metrics.requests import shared_options
from calibrant.results.base import says
from calibrant.results.metric_requests import reject_untaken, requests_in
from calibrant.results.models import Model
from calibrant.results.queries import BinnedQuery
from calibrant.results.reads import Raters, level

MetricBinning = Literal["equal_width", "equal_mass", "hard", "soft", "spline", "gaussian"]


@dataclass(frozen=True, kw_only=True)
class MetricsQuery(BinnedQuery):
    """Which metrics, and how they are computed."""

    metrics: str = says(
        "Slugs separated by commas, each with its options in brackets: ece,lp_ece(order=3). "
        "Default: 12 metrics. GET /v1/metrics lists all.",
        ",".join(DEFAULT_METRICS),
        min_length=1,
        max_length=4000,
    )
    binning: MetricBinning = says(  # type: ignore[assignment]
        "`hard` and `soft` are memberships of the `ml1_*` metrics; `spline` and `gaussian` need raw rows.",
        "equal_width",
    )
    tolerance: float | None = says(
        "Largest acceptable calibration error, set beforehand. Adds `tolerance_verdict` to each and `detectable` to the result.",
        None,
        ge=0,
        le=1,
    )
    raters: Raters = "pooled"
    ci: float = level()

    def resolved(self, model: Model, given: Collection[str]) -> Mapping[str, Any]:
        requests = requests_in(self.metrics, model, shared=shared_options(self.binning))
        reject_untaken(self, given, requests, "/metrics")
        listed = ",".join(each.key for each in requests)
        return {"metrics": listed, **super().resolved(model, given)}
