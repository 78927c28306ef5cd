"""Response models of estimates, derived from the list of metrics."""

from typing import Any

from pydantic import ConfigDict, Field, create_model

from calibrant.metrics import METRICS
from calibrant.results.estimate_values import EstimateValues
from calibrant_server.service.reads.response_models import WindowShown as WindowShown
from calibrant_server.service.reads.response_models import part_of


class Estimate(part_of(EstimateValues, "Estimate")):  # type: ignore[misc]
    """One estimate: null with a reason if there is none."""


def _described(metric: Any) -> Any:
    text = ". ".join(str(part) for part in (metric.title, getattr(metric, "direction", "")) if part)
    return Field(None, title=metric.title, description=text)


# One source: a response may contain exactly the metrics of METRICS.
_FIELDS: dict[str, Any] = {
    slug: (Estimate, _described(metric)) for slug, metric in sorted(METRICS.items())
}
Estimates = create_model(
    "Estimates",
    __config__=ConfigDict(extra="allow"),
    __doc__="Estimates by the canonical key of the request: a slug, with its options in brackets. After each title: "
    "which value is better.",
    **_FIELDS,
)
