"""Methods of `Pane` that compute metrics, reliability tables and temperatures.

They are imported when they are called, because the modules that compute import panes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from calibrant.core.grid import Edges

if TYPE_CHECKING:
    from calibrant.core.pane import Pane
    from calibrant.results import ReliabilityTable, Report, Temperature


class PaneResults:
    """Results of a pane, as the service computes them from a window."""

    def evaluate(
        self,
        metrics: str | Sequence[str] | None = None,
        *,
        bins: int | None = None,
        binning: str = "equal_width",
        edges: Edges = "right",
        min_count: float = 0,
        scope: str | None = None,
        raters: str = "pooled",
        ci: float = 0.95,
        **options: Any,
    ) -> Report:
        """Compute metrics from the pane, as the service does from a window.

        Parameters
        ----------
        metrics, binning, edges, min_count, scope, raters, ci, options : as in `calibrant.evaluate`
        bins : a number that the grid gives exactly. Default: 15, or the nearest that the grid gives.

        Returns
        -------
        Report

        Raises
        ------
        CalibrationInputError
            An unknown metric or option, or a value outside its range.
        """
        from calibrant import library

        return library.evaluate_pane(
            self._pane, metrics, bins=bins, binning=binning, edges=edges, min_count=min_count, scope=scope, raters=raters,
            ci=ci, **options,
        )  # fmt: skip

    def reliability(
        self,
        *,
        bins: int | None = None,
        binning: str = "equal_width",
        edges: Edges = "right",
        min_count: float = 0,
        scope: str | None = None,
        raters: str = "pooled",
        ci: float = 0.95,
    ) -> ReliabilityTable:
        """Compute the reliability table; parameters as in `evaluate`."""
        from calibrant import library

        return library.reliability_of_pane(
            self._pane,
            bins=bins,
            binning=binning,
            edges=edges,
            min_count=min_count,
            scope=scope,
            raters=raters,
            ci=ci,
        )

    def temperature(
        self, *, objective: str = "nll", raters: str = "pooled", ci: float = 0.95, bins: int = 15
    ) -> Temperature:
        """Fit the temperature; parameters as in `calibrant.fit_temperature`."""
        from calibrant import library

        return library.temperature_of_pane(
            self._pane, objective=objective, raters=raters, ci=ci, bins=bins
        )

    @property
    def _pane(self) -> Pane:
        return cast("Pane", self)
