"""The result of a metric: a number with its interval, its null reference and what it was computed from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from calibrant.core.documents import Result
from calibrant.inference.null_reference import ASSUMPTION, NullReference

# What `Estimate` has as attributes; everything else of a metric is its `extra`.
_NULL = ("null_mean", "null_q95", "null_q95_error", "above_null")
_OWN = ("value", "reason", "detail", "interval", "n", "n_ratings", *_NULL)


@dataclass(frozen=True, repr=False)
class Estimate:
    """A number with its uncertainty; `float(estimate)` is the number, and comparisons compare it.

    Attributes
    ----------
    value : float, or None where there is no number; never nan
    reason : why there is no number, as one word for programs: "no_data", "too_few_units", ...
    detail : the same as a sentence
    interval : lower and upper bound, None where there are none; `extra["interval_reason"]` says why
    null : mean and 95 % quantile of the metric for a perfectly calibrated model with the same predictions and sample
        size, None where they are not known
    extra : further results by name, such as `bins`, `scope`, `by_class`, `interval_method`, `error_bound`; `corrected`, which the
        interval describes, and `bias` where chance raises the value by more than a tenth; `range` where units are too few for an interval
    name : the metric's slug, with the options of the request
    n : number of labelled predictions; None where plain histograms do not carry it
    n_ratings : number of ratings
    n_units : number of independent units (patients, items); of a unit that is split over panes each part counts
    n_units_split : number of units that are split over batches or panes

    Examples
    --------
    >>> estimate = Estimate(0.125, interval=(0.1, 0.15), name="ece", n=400)
    >>> estimate
    Estimate(ece=0.1250, interval=[0.1000, 0.1500], n=400)
    >>> float(estimate), f"{estimate:.1%}"
    (0.125, '12.5%')
    >>> estimate < 0.2, round(estimate, 2)
    (True, 0.12)
    >>> missing = Estimate(None, "no_data", name="ece", n=0)
    >>> missing
    Estimate(ece=None, reason='no_data', n=0)
    >>> float(missing)
    Traceback (most recent call last):
    ...
    ValueError: ece has no value: no_data. Read `.value`, which is None, or check `.reason` first.
    """

    value: float | None
    reason: str | None = None
    detail: str | None = None
    interval: tuple[float, float] | None = None
    null: NullReference | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    n: int | None = None
    n_ratings: int | None = None
    n_units: int | None = None
    n_units_split: int | None = None

    def within(
        self, limits: tuple[float | None, float | None], lowest_truth: float | None
    ) -> Estimate:
        """Return the estimate with reference and interval inside what is possible.

        Parameters
        ----------
        limits : lowest and highest possible value of the metric, None where unbounded
        lowest_truth : lowest possible true value, if unbiased estimates can be lower

        Examples
        --------
        >>> Estimate(-0.1, interval=(-0.3, 0.1)).within((-1.0, 1.0), 0.0).interval
        (0.0, 0.1)
        """
        low, high = limits
        null, interval = self.null, self.interval
        if null is not None:
            ends = (clipped(each, low, high) for each in (null.mean, null.q95, null.limit))
            mean, q95, limit = ends
            null = null._replace(mean=mean, q95=q95, limit=limit)
        if interval is not None:
            least = low if lowest_truth is None else lowest_truth
            interval = clipped(interval[0], least, high), clipped(interval[1], least, high)
        return replace(self, null=null, interval=interval)

    @property
    def null_mean(self) -> float | None:
        """Mean of the metric for a perfectly calibrated model of the same predictions and sample size."""
        return None if self.null is None else self.null[0]

    @property
    def null_q95(self) -> float | None:
        """95 % quantile of the metric for a perfectly calibrated model."""
        return None if self.null is None else self.null[1]

    @property
    def above_null(self) -> bool | None:
        """Whether the number is above `null_q95`; None where the draws of the quantile do not decide it.

        Draws decide a difference of at least twice the standard error of the quantile.
        """
        if self.null is None or self.value is None or self.null.q95_error is None:
            return None
        difference = self.value - self.null.q95
        return None if abs(difference) < 2.0 * self.null.q95_error else difference > 0.0

    def verdict(self, tolerance: float) -> str:
        """Return what the interval says about a tolerance that was set beforehand.

        Parameters
        ----------
        tolerance : largest acceptable true value of an error

        Returns
        -------
        "within_tolerance" if the complete interval is below it, "outside" if it is above, else "not_shown", also without interval

        Examples
        --------
        >>> Estimate(0.02, interval=(0.0, 0.04)).verdict(0.05), Estimate(0.02).verdict(0.05)
        ('within_tolerance', 'not_shown')
        """
        if self.interval is None:
            return "not_shown"
        if self.interval[1] < tolerance:
            return "within_tolerance"
        return "outside" if self.interval[0] > tolerance else "not_shown"

    def of(
        self, name: str, counts: Mapping[str, int], n_units_split: int | None = None
    ) -> Estimate:
        """Return the estimate with its name and the counts of the data; what is not finite is no value.

        Parameters
        ----------
        name : slug, with the options of the request
        counts : of the pane
        n_units_split : as in the attributes
        """
        value, extra = finite(self.value), {key: plain(each) for key, each in self.extra.items()}
        lower, upper = self.interval or (None, None)
        bounds = (finite(lower), finite(upper))
        if self.interval is not None and None in bounds:
            extra.setdefault("interval_reason", "undefined")
        return replace(
            self,
            value=value,
            reason=(self.reason or "undefined") if value is None else None,
            detail=self.detail if value is None else None,
            interval=None if bounds[0] is None or bounds[1] is None else (bounds[0], bounds[1]),
            extra=extra,
            name=name,
            n=extra.get("n", counts["n_labelled"]),
            n_ratings=extra.get("n_ratings", counts["n_ratings"]),
            n_units=counts.get("n_units"),
            n_units_split=n_units_split,
        )

    def to_dict(self) -> Result:
        """Return the estimate as the service returns it: plain values, ready for JSON."""
        found: Result = {"value": self.value}
        if self.value is None:
            found["reason"] = self.reason
            if self.detail:
                found["detail"] = self.detail
        found["interval"] = None if self.interval is None else list(self.interval)
        found |= {"null_mean": self.null_mean, "null_q95": self.null_q95}
        if self.null is not None:
            found["null_assumption"] = ASSUMPTION
            found["null_q95_error"] = self.null.q95_error
            found["above_null"] = self.above_null
        return found | {"n": self.n, "n_ratings": self.n_ratings} | dict(self.extra)

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], name: str = "", counts: Mapping[str, Any] | None = None
    ) -> Estimate:
        """Return the estimate that `to_dict` described, or that the service returned.

        Parameters
        ----------
        name : the metric's slug, with the options of the request
        counts : with `n_units` and `n_units_split`, if they are known

        Examples
        --------
        >>> values = {"value": 0.2, "interval": [0.1, 0.3], "null_mean": None, "null_q95": None, "n": 7, "n_ratings": 9, "bins": 15}
        >>> estimate = Estimate.from_dict(values, "ece")
        >>> estimate
        Estimate(ece=0.2000, interval=[0.1000, 0.3000], n=7)
        >>> estimate.extra, estimate.to_dict() == values
        ({'bins': 15}, True)
        """
        interval, counts = values.get("interval"), counts or {}
        null = None
        if values.get("null_mean") is not None and values.get("null_q95") is not None:
            null = NullReference(
                values["null_mean"], values["null_q95"], values.get("null_q95_error")
            )
        return cls(
            values["value"],
            reason=values.get("reason"),
            detail=values.get("detail"),
            interval=None if interval is None else (interval[0], interval[1]),
            null=null,
            extra={
                key: value
                for key, value in values.items()
                if key not in _OWN and (key, value) != ("null_assumption", ASSUMPTION)
            },
            name=name,
            n=values.get("n"),
            n_ratings=values.get("n_ratings"),
            n_units=counts.get("n_units"),
            n_units_split=counts.get("n_units_split"),
        )

    def __float__(self) -> float:
        if self.value is None:
            raise ValueError(
                f"{self.name or 'the estimate'} has no value: {self.reason}. "
                "Read `.value`, which is None, or check `.reason` first."
            )
        return self.value

    def __lt__(self, other: float | Estimate) -> bool:
        return float(self) < float(other)

    def __le__(self, other: float | Estimate) -> bool:
        return float(self) <= float(other)

    def __gt__(self, other: float | Estimate) -> bool:
        return float(self) > float(other)

    def __ge__(self, other: float | Estimate) -> bool:
        return float(self) >= float(other)

    def __round__(self, digits: int = 0) -> float:
        return round(float(self), digits)

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else repr(self)

    def __repr__(self) -> str:
        parts = [f"{self.name or 'value'}={number(self.value)}"]
        if self.value is None:
            parts.append(f"reason={self.reason!r}")
        if self.interval is not None:
            if (
                "corrected" in self.extra
                and self.value is not None
                and self.value > self.interval[1]
            ):
                parts.append(f"corrected={number(self.extra['corrected'])}")
            parts.append(f"interval=[{number(self.interval[0])}, {number(self.interval[1])}]")
        if self.null is not None:
            parts.append(f"null_q95={number(self.null[1])}")
        if self.n is not None:
            parts.append(f"n={self.n}")
        if self.extra.get("warnings"):
            parts.append(f"warnings={list(self.extra['warnings'])}")
        return f"Estimate({', '.join(parts)})"


def number(value: float | None) -> str:
    """Write a number with four decimals, or four digits where that would hide it.

    Examples
    --------
    >>> [number(value) for value in (0.03125, 1.5e-7, 12345.678, 0.0, None)]
    ['0.0312', '1.5e-07', '1.235e+04', '0.0000', 'None']
    """
    if value is None:
        return "None"
    plain_size = value == 0.0 or 1e-3 <= abs(value) < 1e4
    return f"{value:.4f}" if plain_size else f"{value:.4g}"


def clipped(value: Any, low: float | None, high: float | None) -> Any:
    """Return a value inside limits, None where unbounded; None and nan stay.

    Examples
    --------
    >>> clipped(1.2, 0.0, 1.0), clipped(-3.0, None, 1.0), clipped(None, 0.0, 1.0)
    (1.0, -3.0, None)
    """
    if value is None:
        return None
    raised = value if low is None or not value < low else low
    return raised if high is None or not raised > high else high


def finite(value: float | None) -> float | None:
    """Return a finite number as a float, anything else as None."""
    return None if value is None or not math.isfinite(value) else float(value)


def plain(value: Any) -> Any:
    """Return a value with None instead of numbers that JSON does not have."""
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value
