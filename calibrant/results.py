"""Results of the library: numbers that print, convert to plain values and plot.

The dictionaries are those that the service returns under the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from calibrant.calibrators.fitting import apply
from calibrant.core.errors import CalibrationInputError
from calibrant.input.arrays import read_arrays
from calibrant.metrics.estimate import Estimate, number
from calibrant.printing import html_page, html_table, text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
MISSING = "–"


class Report(Mapping[str, Estimate]):
    """Estimates by slug, with the counts of the data that they describe.

    Parameters
    ----------
    estimates : by slug, with the options of the request
    about : the counts, `raters`, `scope`, `bins` and `ci` of the request

    Attributes
    ----------
    n_predictions, n_labelled, n_ratings, n_units : counts of the data
    n_units_split : units that are split over batches or panes; each part counts as a unit of its own in `n_units`
    """

    def __init__(self, estimates: Mapping[str, Estimate], about: Mapping[str, Any]) -> None:
        self._estimates, self.about = dict(estimates), dict(about)

    def __getitem__(self, name: str) -> Estimate:
        try:
            return self._estimates[name]
        except KeyError:
            raise KeyError(f"the report has no {name!r}; it has {', '.join(self)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._estimates)

    def __len__(self) -> int:
        return len(self._estimates)

    @property
    def n_predictions(self) -> int:
        """Number of predictions, labelled or not."""
        return int(self.about["n_predictions"])

    @property
    def n_labelled(self) -> int:
        """Number of predictions with at least one rating."""
        return int(self.about["n_labelled"])

    @property
    def n_ratings(self) -> int:
        """Number of ratings."""
        return int(self.about["n_ratings"])

    @property
    def n_units(self) -> int:
        """Number of independent units; of a unit that is split each part counts."""
        return int(self.about["n_units"])

    @property
    def n_units_split(self) -> int:
        """Number of units that are split over batches or panes, and so count more than once in `n_units`."""
        return int(self.about["n_units_split"])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON: the counts, and `metrics` as the service returns them."""
        return self.about | {
            "metrics": {name: estimate.to_dict() for name, estimate in self.items()}
        }

    def to_html(self) -> str:
        """Return a complete page, which needs nothing from elsewhere."""
        return html_page("Calibration report", self._repr_html_())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw each value with its interval and the range that is usual for a calibrated model.

        Raises
        ------
        ImportError
            matplotlib is not installed; the extra `plot` brings it.
        """
        from calibrant.plots import plot_report

        return plot_report(self, ax)

    @property
    def _caption(self) -> str:
        caption = (
            f"{_counted(self.about)}; raters={self.about['raters']}, scope={self.about['scope']}"
        )
        if self.n_units_split:
            about = "about " if self.about.get("n_units_split_estimated") else ""
            caption += f"\nunits split over batches or panes: {about}{self.n_units_split:,}; each part counts as a unit of its own"
        return caption

    def _table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        header = (
            "metric",
            "value",
            f"{100 * self.about['ci']:g} % interval",
            "null mean",
            "null 95 %",
        )
        return header, [_row(name, estimate) for name, estimate in self.items()]

    def __repr__(self) -> str:
        return text_table(*self._table(), caption=f"Report of {self._caption}")

    def _repr_html_(self) -> str:
        return html_table(*self._table(), caption=self._caption)


class _Values:
    """A result of the service: its values are attributes by name."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._values:
            raise AttributeError(
                f"{type(self).__name__} has no {name!r}; it has {', '.join(self.__dir__())}"
            )
        return self._values[name]

    def __dir__(self) -> list[str]:
        return sorted(
            {*(name for name in super().__dir__() if not name.startswith("_")), *self._values}
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON, as the service returns them."""
        return dict(self._values)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the result that `to_dict` described, or that the service returned."""
        return cls(values)


class ReliabilityTable(_Values):
    """Per bin: count, mean confidence, accuracy and its interval; the numbers behind the reliability diagram.

    Each column is an array with one entry per bin; means of empty bins are nan. The other results are attributes by
    name: `scope`, `raters`, `bins`, `binning`, `edges`, `n`, `n_ratings`, `n_units`, `weight`, `mean_confidence`,
    `accuracy`, `reason`.

    Parameters
    ----------
    values : as the service returns them
    """

    def __len__(self) -> int:
        return len(self._values["table"])

    def column(self, name: str) -> Floats:
        """Return a column by its name in `to_dict()["table"]`; nan where a bin has no value."""
        values = [row[name] for row in self._values["table"]]
        return np.array([np.nan if value is None else value for value in values], np.float64)

    @property
    def lower(self) -> Floats:
        """Lower edges of the bins."""
        return self.column("lower")

    @property
    def upper(self) -> Floats:
        """Upper edges of the bins."""
        return self.column("upper")

    @property
    def bin_weight(self) -> Floats:
        """Weight of the bins under the label policy: ratings for `pooled`, else predictions."""
        return self.column("weight")

    @property
    def bin_count(self) -> Floats:
        """Number of ratings in the bins."""
        return self.column("count")

    @property
    def bin_confidence(self) -> Floats:
        """Mean confidence of the bins."""
        return self.column("mean_confidence")

    @property
    def bin_accuracy(self) -> Floats:
        """Accuracy of the bins: share of ratings equal to the scored class."""
        return self.column("accuracy")

    @property
    def bin_interval(self) -> Floats:
        """Interval of the accuracy, (n_bins, 2)."""
        bounds = [row["interval"] or (np.nan, np.nan) for row in self._values["table"]]
        return np.array(bounds, np.float64).reshape(-1, 2)

    @cached_property
    def ece(self) -> float | None:
        """Expected calibration error of these bins; None without data."""
        weight = self.bin_weight
        gaps = np.abs(np.nan_to_num(self.column("gap")))
        return float((weight * gaps).sum() / weight.sum()) if len(self) and weight.sum() else None

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the reliability diagram: accuracy over confidence with intervals, and how the scores are distributed.

        Parameters
        ----------
        ax : axes to draw into; new ones where None

        Raises
        ------
        ImportError
            matplotlib is not installed; the extra `plot` brings it.
        """
        from calibrant.plots import plot_reliability

        return plot_reliability(self, ax)

    @property
    def _caption(self) -> str:
        values = self._values
        caption = f"{_counted(values)}; raters={values['raters']}, scope={values['scope']}, binning={values['binning']}"
        return caption + ("" if self.ece is None else f"; ECE {number(self.ece)}")

    def _table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        header = (
            "bin",
            "weight",
            "confidence",
            "accuracy",
            "gap",
            f"{100 * self._values['ci']:g} % interval",
        )
        close = "[)" if self._values["edges"] == "left" else "(]"
        rows = [
            (
                f"{close[0]}{row['lower']:.3f}, {row['upper']:.3f}{close[1]}",
                f"{row['weight']:g}",
                *(_cell(row[name]) for name in ("mean_confidence", "accuracy", "gap")),
                _bounds(row["interval"]),
            )
            for row in self._values["table"]
            if row["weight"]
        ]
        return header, rows

    def __repr__(self) -> str:
        if not self.ece and self._values.get("reason"):
            return f"ReliabilityTable(no data, reason={self._values['reason']!r})"
        return text_table(*self._table(), caption=f"ReliabilityTable of {self._caption}")

    def _repr_html_(self) -> str:
        return html_table(*self._table(), caption=self._caption)


class Temperature(_Values):
    """The temperature that fits the labels best; `float(temperature)` is T, and calling it recalibrates.

    Results of the service are attributes by name: `interval`, `standard_error`, `verdict`, `detail`, `objective`,
    `before`, `after`, `curve`, `n`, `n_units`, `reason`, ...

    Parameters
    ----------
    values : as the service returns them
    """

    @property
    def value(self) -> float | None:
        """T; None where the data do not determine one, with a `reason`."""
        found = self._values.get("temperature")
        return None if found is None else float(found)

    def __float__(self) -> float:
        if self.value is None:
            raise ValueError(
                f"there is no temperature: {self._values.get('reason')}. Read `.value`, which is None."
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
        return _applied(
            {"method": "temperature", "scope": "full", **_parameters(self.value)},
            probabilities,
            logits,
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the loss over the temperature, with the fitted one and its interval.

        Raises
        ------
        ImportError
            matplotlib is not installed; the extra `plot` brings it.
        """
        from calibrant.plots import plot_temperature

        return plot_temperature(self, ax)

    def __repr__(self) -> str:
        values = self._values
        if self.value is None:
            return f"Temperature(None, reason={values.get('reason')!r}, n={values.get('n')})"
        interval = values.get("interval")
        bounds = f", interval=[{number(interval[0])}, {number(interval[1])}]" if interval else ""
        return f"Temperature({number(self.value)}{bounds}, verdict={values.get('verdict')!r}, n={values.get('n')})"

    def _repr_html_(self) -> str:
        before, after = self._values.get("before") or {}, self._values.get("after") or {}
        rows = [
            (name.upper(), _cell(before.get(name)), _cell(after.get(name)))
            for name in ("nll", "brier", "ece")
        ]
        return html_table(("loss", "at T = 1", "at the fitted T"), rows, caption=repr(self))


class CalibrationMap(_Values):
    """A fitted calibration map; calling it recalibrates probabilities.

    Results of the service are attributes by name: `method`, `scope`, `parameters`, `digest`, `before`, `after`,
    `heldout`, `warnings`, `n`, `reason`, ...

    Parameters
    ----------
    values : as the service returns them; `method`, `scope`, `class` and `parameters` suffice
    """

    def __call__(self, probabilities: Any = None, *, logits: Any = None) -> Floats:
        """Return recalibrated probabilities.

        Parameters
        ----------
        probabilities, logits : as in `calibrant.evaluate`

        Returns
        -------
        float64: (n, n_classes) of a map of scope `full`; (n,) of scope `positive`, `class` or `top_label`, the
        recalibrated probability of that class

        Raises
        ------
        CalibrationInputError
            A value that is not allowed, or there is no map.
        """
        return _applied(self._values, probabilities, logits)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the recalibrated probability over the probability; for scope `full` with two classes, of class 1.

        Raises
        ------
        ImportError
            matplotlib is not installed; the extra `plot` brings it.
        ValueError
            The map has no curve: it mixes more than two classes.
        """
        from calibrant.plots import plot_map

        return plot_map(self, ax)

    def __repr__(self) -> str:
        values = self._values
        parts = [f"{values.get('method')}, scope={values.get('scope')!r}"]
        if values.get("parameters") is None:
            parts.append(f"parameters=None, reason={values.get('reason')!r}")
        where, losses = (
            ("held out", values["heldout"]) if values.get("heldout") else ("in sample", values)
        )
        eces = [(losses.get(name) or {}).get("ece") for name in ("before", "after")]
        if None not in eces:
            parts.append(f"ECE {where} {number(eces[0])} -> {number(eces[1])}")
        if values.get("n") is not None:
            parts.append(f"n={values['n']}")
        return f"CalibrationMap({', '.join(parts)})"


def _applied(values: Mapping[str, Any], probabilities: Any, logits: Any) -> Floats:
    """Return mapped arrays, in the shape of the argument where the map covers all classes."""
    batch = read_arrays(probabilities, logits=logits)
    mapped = apply(values, batch)
    return np.asarray(mapped[:, 1] if batch.task == "binary" and mapped.ndim == 2 else mapped)


def _parameters(temperature: float | None) -> dict[str, Any]:
    if temperature is None:
        raise CalibrationInputError.at(
            "/temperature", "not_fitted", "there is no temperature to apply"
        )
    return {"parameters": {"temperature": temperature}}


def _counted(about: Mapping[str, Any]) -> str:
    n = about.get("n_labelled", about.get("n")) or 0
    return f"{n:,} labelled predictions, {about['n_ratings']:,} ratings, {about['n_units']:,} units"


def _row(name: str, estimate: Estimate) -> tuple[str, ...]:
    if estimate.value is None:
        return name, MISSING, str(estimate.reason), "", ""
    interval = (
        _bounds(estimate.interval)
        if estimate.interval
        else str(estimate.extra.get("interval_reason", MISSING))
    )
    return (
        name,
        number(estimate.value),
        interval,
        _cell(estimate.null_mean),
        _cell(estimate.null_q95),
    )


def _cell(value: float | None) -> str:
    return MISSING if value is None else number(value)


def _bounds(interval: Any) -> str:
    return MISSING if interval is None else f"[{number(interval[0])}, {number(interval[1])}]"
