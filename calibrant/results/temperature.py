"""The temperature that fits labels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from calibrant.calibrators.candidate_comparison import CandidateComparison
from calibrant.calibrators.temperature.fit import check_ece_bins, fit_temperature
from calibrant.core.arrays import Floats
from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery, default_bins
from calibrant.core.view import View
from calibrant.figures.losses import draw_loss, draw_losses
from calibrant.inference.temperature_differences import temperature_difference
from calibrant.metrics.estimate import number
from calibrant.printing import html_table
from calibrant.results.base import Result, may_say, only, says
from calibrant.results.calibration_map import recalibrated
from calibrant.results.models import Model
from calibrant.results.queries import DETAILS, costly_parts, in_order, parts_of, smallest_bin
from calibrant.results.reads import (
    SAMPLE,
    SAMPLE_OF_FEW,
    Query,
    Raters,
    State,
    label_policy,
    level,
    other_side,
    read,
)
from calibrant.results.recommendation import Recommendation
from calibrant.results.values import bounds_text, cell
from calibrant.results.weights import Weighted, Weights, weighted, weights_of_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = ("recommendation", "heldout", "curve", DETAILS)
# What a response without details has.
SHORT = frozenset({
    "model", "window", "slice", "state_version", "n", "n_units", "objective", "scope", "temperature", "inverse_temperature",
    "interval", "standard_error", "at_bound", "at_most", "plateau", "before", "after", "verdict", "weights",
    "reason", "detail", "interval_reason", "difference_reason", "against", "difference", "difference_interval", "ratio",
    "ratio_interval", "clock", "sealed_to", "matured", "warnings", "recommendation", "heldout", "curve",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TemperatureQuery(Query):
    """What the temperature is fitted to."""

    objective: Literal["nll", "brier", "ece"] = says("Loss that the temperature minimises.", "nll")
    raters: Raters = label_policy()
    bins: int = says("Equal-width bins of the ECE; a divisor of 60.", 15, ge=1, le=60)
    min_count: float = smallest_bin()
    ci: float = level()
    weights: Weights = weights_of_rows()
    include: str | None = costly_parts(PARTS)

    def resolved(self, model: Model, given: Collection[str]) -> Mapping[str, Any]:
        check_ece_bins(self.bins)
        return {"include": in_order(self.include, PARTS)}


@dataclass(frozen=True, kw_only=True, repr=False)
class Temperature(Result):
    """The fitted temperature.

    `float(temperature)` is T, and calling it recalibrates.
    """

    temperature: float | None
    inverse_temperature: float | None
    standard_error: float | None = may_say()
    interval: list[float | None] | None = may_say(
        "Interval from the likelihood ratio, scaled by unit. "
        "Null below 30 units, or below 5 units with an incorrect rating."
    )
    interval_reason: str | None = may_say()
    at_most: float | None = may_say(
        "With the reason `separable`: the one-sided upper limit of T at level `ci`."
    )
    at_most_of: str | None = may_say(
        "`sample`: `at_most` was computed from the stored sample, because units differ in weight."
    )
    at_most_reason: str | None = may_say()
    objective: str
    at_bound: bool | None = may_say()
    plateau: list[float] | None = may_say(
        "For the objective ECE: temperatures that are as good within the error. For Brier: the two lowest minima, "
        "if they differ by less than 0.1 %."
    )
    error_estimate: dict[str, float | None] | None = may_say(
        "Estimated interpolation error: `temperature` relative to T, and `ece` of `after`."
    )
    precision: str | None = may_say(
        "For the objective Brier: `second_derivative`, `first_derivative` (older panes) or `rows`."
    )
    gradient_norm: float | None = may_say(
        "Derivative of the mean loss in log T at the fit; null for the objective ECE."
    )
    iterations: int | None = may_say()
    objective_before: float | None = may_say()
    objective_after: float | None = may_say()
    n: int
    n_incorrect_units: int | None = may_say(
        "Units with a rating other than the most probable class."
    )
    before: dict[str, float | None] | None = may_say(
        "Losses `nll`, `brier` and `ece` at T = 1. `nll` is null if a rating has probability 0."
    )
    after: dict[str, float | None] | None = may_say("The same at the fitted T.")
    curve: dict[str, list[float | None]] | None = may_say(
        "Losses `nll`, `brier` and `ece` along a grid of `temperature`."
    )
    heldout: dict[str, Any] | None = may_say(
        "Losses before and after, and the gain, on labels that the fit did not use. "
        "`halves`: for fits to half of the rows."
    )
    recommendation: Recommendation | None = may_say()
    reason: str | None = may_say()

    @classmethod
    def with_curve(
        cls, values: Mapping[str, Any], curve: Callable[[], dict[str, list[float | None]] | None]
    ) -> Temperature:
        """Return the result of these values, whose `curve` is computed when it is first read."""
        found = cls.from_dict(values)
        vars(found)["_curve"] = curve
        return found

    def __getattribute__(self, name: str) -> Any:
        known = super().__getattribute__("__dict__")
        if name == "curve" and "_curve" in known:
            known["curve"] = known.pop("_curve")()
        return super().__getattribute__(name)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy contains: the curve itself."""
        return vars(self) | {"curve": self.curve}

    @property
    def value(self) -> float | None:
        """T; None where the data do not determine one, with a `reason`."""
        return None if self.temperature is None else float(self.temperature)

    def __float__(self) -> float:
        if self.value is None:
            raise ValueError(
                f"there is no temperature: {self.reason}. Read `.value`, which is None."
            )
        return self.value

    def __call__(self, probabilities: Any = None, *, logits: Any = None) -> Floats:
        """Return the probabilities softmax(z / T).

        Parameters
        ----------
        probabilities, logits : as in `calibrant.evaluate`

        Returns
        -------
        float64 of the shape of the argument

        Raises
        ------
        CalibrationInputError
            A value that is not allowed, or there is no temperature.
        """
        return recalibrated(
            {"method": "temperature", "scope": "full", **_parameters(self.value)},
            probabilities,
            logits,
        )

    def plot(self, ax: Axes | None = None) -> Axes:  # type: ignore[override]
        """Draw the loss over the temperature, with the fitted one and its interval.

        Raises
        ------
        ImportError
            matplotlib is not installed; the extra `plot` brings it.
        """
        from calibrant.figures.base import plotted

        loss = self.objective or "nll"
        return plotted(
            partial(draw_losses, only=loss), partial(draw_loss, name=loss), self.to_dict(), ax
        )

    def __repr__(self) -> str:
        if self.value is None:
            return f"Temperature(None, reason={self.reason!r}, n={self.n})"
        bounds = f", interval={bounds_text(self.interval)}" if self.interval else ""
        return f"Temperature({number(self.value)}{bounds}, verdict={self.about.get('verdict')!r}, n={self.n})"

    def _repr_html_(self) -> str:
        before, after = self.before or {}, self.after or {}
        rows = [
            (name.upper(), cell(before.get(name)), cell(after.get(name)))
            for name in ("nll", "brier", "ece")
        ]
        return html_table(("loss", "at T = 1", "at the fitted T"), rows, caption=repr(self))


def _parameters(temperature: float | None) -> dict[str, Any]:
    if temperature is None:
        raise CalibrationInputError.at(
            "/temperature", "not_fitted", "there is no temperature to apply"
        )
    return {"parameters": {"temperature": temperature}}


def _accumulators(query: TemperatureQuery) -> Iterable[str]:
    """Name counts, plain histograms (which give no temperature: the result states it), the profile and the stored sample.

    Of many rows, the sample only serves a fit in which units weigh one, and other candidates than a temperature. Cells of the score show
    whether all weights are equal.
    """
    needs_rows = query.weights == "unit" or {"recommendation", "heldout"} & {
        *parts_of(query.include)
    }
    sample = SAMPLE if needs_rows else SAMPLE_OF_FEW
    return ("counts", "histograms", "temperature", "top_label", "positive", sample)


def _fitted(query: TemperatureQuery, rows: Weighted) -> dict[str, Any]:
    names = ("objective", "raters", "ci", "bins", "min_count")
    found = fit_temperature(
        rows.pane, rows_if_complete=True, **{name: getattr(query, name) for name in names}
    )
    included = parts_of(query.include)
    if "curve" not in included:
        found.pop("curve", None)
    return _with_size(found | rows.about | _candidates(query, rows.pane, included))


def _candidates(query: TemperatureQuery, pane: Pane, included: list[str]) -> dict[str, Any]:
    if not {"recommendation", "heldout"} & {*included}:
        return {}
    view = View(pane, PaneQuery(bins=default_bins(pane.spec), raters=query.raters, ci=query.ci))
    candidates = CandidateComparison(view)
    found: dict[str, Any] = {}
    if "heldout" in included:
        found |= candidates.held_out_temperature(
            query.objective, bins=query.bins, min_count=query.min_count
        )
    if "recommendation" in included:
        found |= candidates.recommended()
    return found


def _with_size(found: dict[str, Any]) -> dict[str, Any]:
    """Return the result with the fitted number in the sentence that recommends a temperature."""
    advice, value = found.get("recommendation"), found["temperature"]
    if advice is None or advice["action"] != "temperature" or value is None:
        return found
    reason = f"{advice['reason']} The temperature of these labels is {value:.2f}."
    return found | {"recommendation": {**advice, "reason": reason}}


def _compared(state: State, other: State, query: TemperatureQuery) -> Temperature:
    """Return the fit with the other side's temperature, the difference and the ratio."""
    own, others = (weighted(each.pane, query.weights, query.raters) for each in (state, other))
    mine, theirs = _fitted(query, own), _fitted(replace(query, include=None), others)
    found = temperature_difference(mine, theirs, own.pane, others.pane)
    del found["shared"]
    against = other_side(state, other) | found.pop("against")
    return Temperature.from_dict(mine | found | {"against": against})


@read(
    "temperature",
    tag="temperature",
    response="The temperature, or a figure of its losses",
    figure=draw_losses,
    drawn={"include": "curve"},
    is_map=True,
    accumulators=_accumulators,
    compare=_compared,
    short=partial(only, SHORT),
)
def temperature(state: State, query: TemperatureQuery) -> Temperature:
    """Fit the temperature that scales the model's logits best; as SVG or PNG the losses along it."""
    return Temperature.from_dict(_fitted(query, weighted(state.pane, query.weights, query.raters)))
