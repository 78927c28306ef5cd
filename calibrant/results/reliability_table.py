"""Result of `reliability`: the numbers behind the reliability diagram."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.core.arrays import Floats
from calibrant.metrics.estimate import number
from calibrant.printing import html_table, text_table
from calibrant.results.base import Result, may_say, says
from calibrant.results.values import bounds_text, cell, counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ReliabilityTable(Result):
    """Per bin: count, mean confidence, accuracy and its interval; the numbers behind the reliability diagram.

    Each column is an array with one entry per bin; means of empty bins are nan.
    """

    scope: str
    raters: str
    bins: int
    binning: str
    bin_edges: list[float] | None = may_say("Own edges of the bins, if they were requested.")
    edges: str
    ci: float = says("Level of the intervals.")
    n: int = says("Labelled predictions.")
    n_predictions: int
    n_ratings: int
    n_units: int
    weight: float | None = says("Total weight under the label policy.")
    mean_confidence: float | None
    accuracy: float | None = says("Share of ratings equal to the scored class.")
    table: list[dict[str, Any]] = says("One object per bin; empty bins have null means.")
    reason: str | None = may_say("Why there are no data.")

    def __len__(self) -> int:
        return len(self.table)

    def column(self, name: str) -> Floats:
        """Return a column by its name in `to_dict()["table"]`; nan where a bin has no value."""
        values = [row[name] for row in self.table]
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
        bounds = [row["interval"] or (np.nan, np.nan) for row in self.table]
        return np.array(bounds, np.float64).reshape(-1, 2)

    @cached_property
    def ece(self) -> float | None:
        """Expected calibration error of these bins; None without data."""
        weight = self.bin_weight
        gaps = np.abs(np.nan_to_num(self.column("gap")))
        return float((weight * gaps).sum() / weight.sum()) if len(self) and weight.sum() else None

    def plot(self, ax: Axes | None = None) -> Axes:  # type: ignore[override]
        """Draw the reliability diagram: accuracy over confidence with intervals, and how the scores are distributed.

        Parameters
        ----------
        ax : axes to draw the curve into; a new figure, with the distribution, where None

        Raises
        ------
        ImportError
            matplotlib is not installed; the extra `plot` brings it.
        """
        from calibrant.figures.base import plotted
        from calibrant.figures.reliability import draw_curve, draw_reliability

        error = {"value": self.ece}
        return plotted(draw_reliability, draw_curve, self.to_dict() | {"error": error}, ax)

    @property
    def _caption(self) -> str:
        values = self.to_dict()
        caption = f"{counted(values)}; raters={values['raters']}, scope={values['scope']}, binning={values['binning']}"
        return caption + ("" if self.ece is None else f"; ECE {number(self.ece)}")

    def _table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        header = (
            "bin",
            "weight",
            "confidence",
            "accuracy",
            "gap",
            f"{100 * self.ci:g} % interval",
        )
        close = "[)" if self.edges == "left" else "(]"
        rows = [
            (
                f"{close[0]}{row['lower']:.3f}, {row['upper']:.3f}{close[1]}",
                f"{row['weight']:g}",
                *(cell(row[name]) for name in ("mean_confidence", "accuracy", "gap")),
                bounds_text(row["interval"]),
            )
            for row in self.table
            if row["weight"]
        ]
        return header, rows

    def __repr__(self) -> str:
        if not self.ece and self.reason:
            return f"ReliabilityTable(no data, reason={self.reason!r})"
        return text_table(*self._table(), caption=f"ReliabilityTable of {self._caption}")

    def _repr_html_(self) -> str:
        return html_table(*self._table(), caption=self._caption)
