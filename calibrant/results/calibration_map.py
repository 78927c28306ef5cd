"""A fitted calibration map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from calibrant.calibrators import MAPS
from calibrant.calibrators.applying import apply
from calibrant.calibrators.candidate_comparison import recommend
from calibrant.calibrators.fitting import fit
from calibrant.calibrators.map_comparison import gain_over_other_map
from calibrant.calibrators.softmax import MAX_CURVED
from calibrant.core.arrays import Floats
from calibrant.core.errors import CalibrationInputError
from calibrant.figures.calibration_map import draw_calibration_map, draw_mapped
from calibrant.input.arrays import read_arrays
from calibrant.metrics.estimate import number
from calibrant.results.base import Result, may_say
from calibrant.results.map_query import CalibrationMapQuery
from calibrant.results.queries import parts_of
from calibrant.results.reads import State, other_side, read
from calibrant.results.recommendation import Recommendation
from calibrant.results.weights import Weighted, weighted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_READ = (
    "counts",
    "histograms",
    "replicates",
    "top_label",
    "positive",
    "classes",
    "temperature",
    "sample",
)
_OF_OTHER = ("method", "scope", "class", "parameters", "digest", "n", "before", "after", "reason")


@dataclass(frozen=True, kw_only=True, repr=False)
class CalibrationMap(Result):
    """A map as plain numbers, from which any client can compute it.

    Calling it recalibrates probabilities; `method`, `scope`, `class` and `parameters` suffice for that.
    """

    method: str
    class_: int | None = may_say("Class index, for the scope `class`.")
    scope: Literal["positive", "top_label", "class", "full"]
    parameters: dict[str, Any] | None
    digest: str | None
    n: int
    before: dict[str, Any] | None = may_say()
    after: dict[str, Any] | None = may_say()
    heldout: dict[str, Any] | None = may_say()
    gradient_norm: float | None = may_say("Largest slope of the mean loss.")
    iterations: int | None = may_say()
    objective_before: float | None = may_say()
    objective_after: float | None = may_say()
    at_bound: bool | None = may_say()
    standard_errors: dict[str, Any] | None = may_say("Standard errors of the parameters.")
    sample: dict[str, Any] | None = may_say(
        "For maps fitted to the stored sample: n, threshold, complete."
    )
    recommendation: Recommendation | None = may_say()
    reason: str | None = may_say()

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
        return recalibrated(self.to_dict(), probabilities, logits)

    def plot(self, ax: Axes | None = None) -> Axes:  # type: ignore[override]
        """Draw the recalibrated probability over the probability; of class 1 of two, or of each class against the rest.

        Raises
        ------
        ImportError
            matplotlib is not installed; the extra `plot` brings it.
        ValueError
            The map has no curve: it mixes more than two classes.
        """
        from calibrant.figures.base import plotted

        if self.scope == "full" and "classes" not in (self.parameters or {"classes": None}):
            self._check_two_classes()
        return plotted(draw_calibration_map, draw_mapped, self.to_dict(), ax)

    def _check_two_classes(self) -> None:
        try:
            self(np.array([[0.5, 0.5]]))
        except (ValueError, IndexError) as error:
            raise ValueError(
                "a map of more than two classes has no curve of one probability"
            ) from error

    def __repr__(self) -> str:
        values = self.to_dict()
        parts = [f"{values.get('method')}, scope={values.get('scope')!r}"]
        if values.get("parameters") is None:
            parts.append(f"parameters=None, reason={values.get('reason')!r}")
        heldout = values.get("heldout") or {}
        # The gain of a temperature over the complete window is known in NLL; in ECE only that of fits to halves.
        heldout = heldout.get("halves") or heldout
        where, losses = ("held out", heldout) if heldout else ("in sample", values)
        eces = [(losses.get(name) or {}).get("ece") for name in ("before", "after")]
        if None not in eces:
            parts.append(f"ECE {where} {number(eces[0])} -> {number(eces[1])}")
        if values.get("n") is not None:
            parts.append(f"n={values['n']}")
        return f"CalibrationMap({', '.join(parts)})"


def recalibrated(values: Mapping[str, Any], probabilities: Any, logits: Any) -> Floats:
    """Return mapped arrays, in the shape of the argument where the map covers all classes."""
    batch = read_arrays(probabilities, logits=logits)
    mapped = apply(values, batch)
    return np.asarray(mapped[:, 1] if batch.task == "binary" and mapped.ndim == 2 else mapped)


def _reject_too_small(found: Mapping[str, Any]) -> None:
    """Reject a map with more parameters than the sample can determine, with the numbers needed."""
    method, reason = found["method"], found["reason"]
    if reason == "too_many_classes":
        detail = f"Received {method} with {found['n_parameters']} parameters; expected at most {MAX_CURVED}. Choose a map with fewer."
        raise CalibrationInputError.at("/method", reason, detail)
    if reason == "few_rows" and "n_units_needed" in found:
        where = " in the stored sample" if found["fitted_to"] == "sample" else ""
        detail = (
            f"Received {found['n_units_fitted']} independent units{where} for {found['n_parameters']} parameters of "
            f"{method}; expected at least {found['n_units_needed']}. Use a longer window or a map with fewer parameters."
        )
        raise CalibrationInputError.at("/method", "few_units", detail)


def _fitted(query: CalibrationMapQuery, rows: Weighted) -> dict[str, Any]:
    view, options = query.view_of(rows.pane)
    included = parts_of(query.include)
    found = fit(query.slug, view, options, evaluate="heldout" in included)
    _reject_too_small(found)
    if "heldout" not in included:
        del found["heldout"], found["heldout_reason"]
    return found | rows.about | (recommend(view) if "recommendation" in included else {})


def _compared(state: State, other: State, query: CalibrationMapQuery) -> CalibrationMap:
    """Return the map with the other side's, and the gain over it on this window's labels."""
    own, others = (weighted(each.pane, query.weights, query.raters) for each in (state, other))
    theirs = fit(query.slug, *query.view_of(others.pane), evaluate=False)
    view, options = query.view_of(own.pane)
    mine, gain = _fitted(query, own), gain_over_other_map(theirs, view, query.slug, options)
    shown = {name: theirs[name] for name in _OF_OTHER if name in theirs}
    against = other_side(replace(state, pane=own.pane), other) | {"map": shown}
    return CalibrationMap.from_dict(mine | gain | {"n": mine["n"], "against": against})


@read(
    "calibration-map",
    tag="maps",
    response="The map, or its curve",
    is_map=True,
    # Everything that some map reads, where the model's panes store it.
    accumulators=lambda query: _READ,
    compare=_compared,
    # Maps with parameters per class take seconds: several strengths of shrinkage, and folds.
    is_slow=lambda query: MAPS[query.slug].solve_rows is not None,
)
def calibration_map(state: State, query: CalibrationMapQuery) -> CalibrationMap:
    """Fit a calibration map to the window's labels; as SVG or PNG the curve of the map."""
    rows = weighted(state.pane, query.weights, query.raters)
    return CalibrationMap.from_dict(_fitted(query, rows))
