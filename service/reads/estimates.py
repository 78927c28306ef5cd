"""Response models of estimates, derived from the list of metrics."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from calibrant.metrics import METRICS
from calibrant_server.service.reads.recommendations import Recommendation


class WindowShown(BaseModel):
    """The window after it was resolved to whole panes: half open, RFC 3339."""

    from_: str = Field(alias="from")
    to: str


class Estimate(BaseModel):
    """One estimate: null with a reason if there is none."""

    model_config = ConfigDict(extra="allow")

    value: float | None
    interval: list[float | None] | None = None
    interval_of: str | None = Field(
        None,
        description="What the interval contains with the requested probability. The estimate can be above it.",
    )
    n_effective: float | None = Field(
        None,
        description="Kish's effective number of independent samples: weights and dependent units lower it.",
    )
    tolerance_verdict: Literal["within_tolerance", "outside", "not_shown"] | None = Field(
        None, description="With `tolerance`: whether the complete interval is below or above it."
    )
    null_mean: float | None = None
    null_q95: float | None = None
    null_q95_error: float | None = Field(
        None, description="Standard error of `null_q95` from the number of draws; 0: closed form."
    )
    above_null: bool | None = Field(
        None,
        description="Whether the value is above `null_q95`; null within twice its standard error.",
    )
    null_worst_case: dict[str, Any] | None = Field(
        None,
        description="`mean` and `q95` of a calibrated model if all predictions of a unit were fully dependent; only if units were named.",
    )
    design_effect: float | None = Field(
        None,
        description="Variance of the gaps relative to independent predictions, under the null.",
    )
    null_replicates: int | None = Field(
        None,
        description="Replicates that contain units. The null reference is promised from 20 on, returned from 12.",
    )
    n: int | None = None
    n_ratings: int | None = None
    reason: str | None = None
    error_bound: float | None = Field(None, description="Largest error that cells can cause.")
    error_estimate: float | None = Field(None, description="Error to expect from cells.")
    error_bound_reason: str | None = Field(None, description="Why cells give no `error_bound`.")


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
