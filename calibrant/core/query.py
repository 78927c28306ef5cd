"""Query of a pane: bins, edges, label policy, scope. Checked here, because the result depends on all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from calibrant.core.errors import CalibrationInputError
from calibrant.core.grid import Edges
from calibrant.core.label_policies import POLICIES
from calibrant.core.spec import PaneSpec

MAX_BINS = 100_000
BINNINGS = ("equal_width", "equal_mass")


@dataclass(frozen=True)
class PaneQuery:
    """Options of a calibration result.

    Parameters
    ----------
    bins : number of bins
    binning : "equal_width" or "equal_mass"
    edges : "right" for (a, b] with 0 in the first bin, "left" for [a, b) with 1 in the last
    raters : label policy
    min_count : bins with fewer samples (mass if predictions are weighted) are left out
    scope : "top_label", "positive", "class:INDEX" or "all". Default: the model's own.
    ci : nominal coverage of intervals, in (0, 1)
    options : further options by name, for the metrics that read them
    own_bins : bins are of a table other than the scope's (uncertainty, disagreement, cases), which checks them by its own grid
    """

    bins: int = 15
    binning: str = "equal_width"
    edges: Edges = "right"
    raters: str = "pooled"
    min_count: float = 0
    scope: str | None = None
    ci: float = 0.95
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    own_bins: bool = False

    def check(self, spec: PaneSpec, *, exact: bool = True) -> PaneQuery:
        """Return the query itself if a pane of this spec supports it; raw rows give any bins, `exact=False`.

        Raises
        ------
        CalibrationInputError
            An option outside its range, a scope that the model does not have, or bins that its grid cannot give exactly.
        """
        _one_of("binning", self.binning, BINNINGS)
        _one_of("edges", self.edges, ("right", "left"))
        _one_of("raters", self.raters, POLICIES)
        if not 0.5 <= self.ci < 1.0:
            raise CalibrationInputError.at(
                "/ci", "range", f"Received ci={self.ci}; expected a number in [0.5, 1)."
            )
        if not 0 <= self.min_count <= 2**53:
            raise CalibrationInputError.at(
                "/min_count", "range", f"Received min_count={self.min_count}; expected 0 to 2^53."
            )
        scope = self.scope_for(spec)
        grid, exact = spec.grid_for(scope), exact and not self.own_bins
        most = grid.cells if exact else MAX_BINS
        if not 1 <= self.bins <= most:
            raise CalibrationInputError.at(
                "/bins", "range", f"Received bins={self.bins}; expected 1 to {most}."
            )
        if exact and self.binning == "equal_width" and self.bins not in grid.exact_bins:
            raise CalibrationInputError.at(
                "/bins", "bins_not_exact", inexact_bins(self.bins, scope, spec)
            )
        return self

    def scope_for(self, spec: PaneSpec) -> str:
        """Return the scope of the query, or the model's own.

        Raises
        ------
        CalibrationInputError
            The model has no such scope.
        """
        scope: Any = spec.default_scope if self.scope is None else self.scope
        if not isinstance(scope, str):
            detail = f"Received a scope of type {type(scope).__name__}; expected text, such as 'class:0'."
            raise CalibrationInputError.at("/scope", "type", detail)
        kind, _, name = scope.partition(":")
        if kind == "class" and name.isdecimal() and len(name) <= 5 and int(name) < spec.n_classes:
            return f"class:{int(name)}"
        if scope in ("top_label", "all") or (scope == "positive" and spec.n_classes == 2):
            return str(scope)
        detail = (
            f"Received scope {scope[:60]!r}; expected one of this model: top_label, all, class:INDEX"
            + (", positive" if spec.n_classes == 2 else "")
        )
        raise CalibrationInputError.at("/scope", "one_of", detail)


def default_bins(spec: PaneSpec, scope: str | None = None, wanted: int = 15) -> int:
    """Return the default number of bins: the wanted one, or the nearest that the grid of a scope gives."""
    exact = spec.grid_for(scope or spec.default_scope).exact_bins
    return min(exact, key=lambda bins: (abs(bins - wanted), -bins))


def inexact_bins(bins: int, scope: str, spec: PaneSpec) -> str:
    """Return the sentence with the bin counts that a scope's grid gives exactly."""
    exact = ", ".join(map(str, spec.grid_for(scope).exact_bins))
    return f"the grid cannot give {bins} equal-width bins of {scope} exactly; it gives {exact}"


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise CalibrationInputError.at(
            f"/{name}",
            "one_of",
            f"Received {name} {str(value)[:60]!r}; expected one of {', '.join(known)}.",
        )
