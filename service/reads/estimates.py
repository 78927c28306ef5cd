"""Response models of estimates, derived from the list of metrics."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from calibrant.metrics import METRICS
from calibrant.results.estimate_values import EstimateValues
from calibrant_server.service.reads.recommendations import Recommendation
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


class Scores(BaseModel):
    """Scores at one temperature."""

    model_config = ConfigDict(extra="allow")

    nll: float | None
    brier: float | None
    ece: float | None


class Curve(BaseModel):
    """Losses along a grid of temperatures."""

    model_config = ConfigDict(extra="allow")

    temperature: list[float]
    nll: list[float | None]
    brier: list[float | None]
    ece: list[float | None]


class TemperatureResponse(BaseModel):
    """The fitted temperature."""

    model_config = ConfigDict(extra="allow")

    temperature: float | None
    inverse_temperature: float | None
    standard_error: float | None = None
    interval: list[float | None] | None = Field(
        None,
        description="Interval from the likelihood ratio, scaled by unit. Null below 30 units, or below 5 units with an incorrect rating.",
    )
    interval_reason: str | None = None
    at_most: float | None = Field(
        None,
        description="With the reason `separable`: the one-sided upper limit of T at level `ci`.",
    )
    at_most_of: str | None = Field(
        None,
        description="`sample`: `at_most` was computed from the stored sample, because units differ in weight.",
    )
    at_most_reason: str | None = None
    objective: str
    at_bound: bool | None = None
    plateau: list[float] | None = Field(
        None,
        description="For the objective ECE: temperatures that are as good within the error. For Brier: the two lowest minima, "
        "if they differ by less than 0.1 %.",
    )
    error_estimate: dict[str, float | None] | None = Field(
        None,
        description="Estimated interpolation error: `temperature` relative to T, and `ece` of `after`.",
    )
    precision: str | None = Field(
        None,
        description="For the objective Brier: `second_derivative`, `first_derivative` (older panes) or `rows`.",
    )
    gradient_norm: float | None = Field(
        None,
        description="Derivative of the mean loss in log T at the fit; null for the objective ECE.",
    )
    iterations: int | None = None
    objective_before: float | None = None
    objective_after: float | None = None
    n: int
    n_incorrect_units: int | None = Field(
        None, description="Units with a rating other than the most probable class."
    )
    before: Scores | None = None
    after: Scores | None = None
    curve: Curve | None = None
    heldout: dict[str, Any] | None = Field(
        None,
        description="Losses before and after, and the gain, on labels that the fit did not use. `halves`: for fits to half of the rows.",
    )
    recommendation: Recommendation | None = None
    reason: str | None = None
