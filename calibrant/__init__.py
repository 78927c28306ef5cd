"""Calibration of probabilistic predictions: errors, intervals, diagrams, temperatures and maps.

    >>> import calibrant as cal
    >>> error = cal.ece([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]], [[0, 0], [1, 1, 2]])
    >>> round(float(error), 3)
    0.2

Numbers in, numbers out: no clock, no network, no store, no logging. A notebook, a client at the edge and the service
compute the same numbers from the same predictions. `docs/library.md` shows everything that this package offers.

Names are imported when they are first used, so that `import calibrant` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Where each public name is; the functions of the metrics come from `metric_functions`.
_PLACES = {
    "Annotations": "input.annotations",
    "AsyncClient": "client",
    "Batch": "core.batch",
    "CalibrationInputError": "core.errors",
    "CalibrationMap": "results",
    "Client": "client",
    "Comparison": "results",
    "DecisionCurve": "results",
    "Difference": "results",
    "Estimate": "metrics.estimate",
    "Histogram": "core.histogram",
    "Key": "core.panes_by_key",
    "METRICS": "metrics",
    "Violation": "core.errors",
    "Pane": "core.pane",
    "PaneSpec": "core.spec",
    "PanesByKey": "core.panes_by_key",
    "ReliabilityTable": "results",
    "MultilabelReport": "results",
    "Report": "results",
    "SlicedReport": "results",
    "SplitUnitsWarning": "core.panes_by_key",
    "Temperature": "results",
    "compare": "library_comparison",
    "compat": "library_comparison",
    "decision_curve": "library_curves",
    "evaluate": "library",
    "fill_by": "core.panes_by_key",
    "fit_map": "library",
    "fit_temperature": "library",
    "reliability": "library",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("calibrant")
    if name == "__all__":
        return __dir__()
    if name in _PLACES:
        found = getattr(import_module(f"calibrant.{_PLACES[name]}"), name)
    else:
        found = None if name.startswith("_") else _functions().get(name)
        if found is None:
            raise AttributeError(f"module 'calibrant' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*_PLACES, *_functions(), "__version__"])


def _functions() -> dict[str, Any]:
    """Return the functions of the metrics by slug."""
    functions: dict[str, Any] = import_module("calibrant.metric_functions").FUNCTIONS
    return functions
