"""Any set of metrics over a window."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from calibrant.core.documents import Result
from calibrant.core.pane import Pane
from calibrant.core.view import View
from calibrant.inference.detectable import LEVEL, POWER, detectable
from calibrant.inference.metrics_differences import differences
from calibrant.metrics import (
    Estimate,
    accumulators_for,
    compute_metrics,
    is_error,
)
from calibrant.metrics.requests import split
from calibrant.raters.label_coverage import PARTS, coverage
from calibrant.results.metrics import MetricsQuery as LibraryMetricsQuery
from calibrant_server.workers.queries.declared import query_class
from calibrant_server.workers.queries.kind import (
    Against,
    Inputs,
    ResultKind,
    other_side,
    reject_other_classes,
)
from calibrant_server.workers.queries.metric_work import reject_costly_metrics
from calibrant_server.workers.queries.query import Query
from calibrant_server.workers.store.model_config import ModelConfig

DAY_S = 86_400.0
MAX_QUICK_OPTIONS = 12


class MetricsQuery(query_class(LibraryMetricsQuery)):  # type: ignore[misc]
    """Which metrics, and how they are computed."""

    kind: ClassVar[str] = "metrics"

    def resolved(self, config: ModelConfig) -> Query:
        found: Any = super().resolved(config)
        reject_costly_metrics("/metrics", found.listed, bins=found.bins)
        return cast("Query", found)

    @property
    def listed(self) -> list[str]:
        """The requested metrics, one by one."""
        return split(self.metrics)


def accumulators(query: MetricsQuery) -> frozenset[str]:
    """Return what the requested metrics read."""
    shown = frozenset() if query.tolerance is None else accumulators_for(["ece"], query.scope)
    return accumulators_for(query.listed, query.scope) | {"unit_sample", *PARTS} | shown


def is_slow(query: MetricsQuery) -> bool:
    """Return whether many metrics have options of their own: each such metric needs its own view."""
    return sum("(" in each for each in query.listed) > MAX_QUICK_OPTIONS


def compute(query: MetricsQuery, inputs: Inputs) -> Result:
    """Counts of the window, and each metric by its key."""
    pane = inputs.pane
    view = View(pane, query.plain().pane_query())
    found = judged(compute_metrics(view, query.listed, inputs.seed), query.tolerance)
    return (
        _around(pane, view)
        | _detectable(view, query, inputs)
        | {
            "metrics": _named(found, inputs.config.classes),
            "label_coverage": coverage(pane, ci=query.ci),
        }
    )


def compare(query: MetricsQuery, inputs: Inputs, other: Inputs, against: Against) -> Result:
    """The same, with the other side's value, the difference and its interval in each metric."""
    reject_other_classes(inputs.config, other.config)
    pane, pane_query = inputs.pane, query.plain().pane_query()
    view = View(pane, pane_query)
    found = differences(view, View(other.pane, pane_query), query.listed, inputs.seed)
    found = judged(found, query.tolerance)
    return (
        _around(pane, view)
        | _detectable(view, query, inputs)
        | {
            "metrics": _named(found, inputs.config.classes),
            "label_coverage": coverage(pane, ci=query.ci),
            "against": other_side(against, pane, other),
        }
    )


def judged(found: dict[str, Result], tolerance: float | None) -> dict[str, Result]:
    """Add the verdict against a tolerance to each calibration error."""
    if tolerance is not None:
        for key, each in found.items():
            if is_error(key.partition("(")[0]):
                interval = each["interval"]
                bounds = None if interval is None else (interval[0], interval[1])
                each["tolerance_verdict"] = Estimate(each["value"], interval=bounds).verdict(
                    tolerance
                )
    return found


def _detectable(view: View, query: MetricsQuery, inputs: Inputs) -> Result:
    """Return what the window could have shown, and what 30 and 90 more days of as many predictions could show."""
    if query.tolerance is None:
        return {}
    days = (inputs.window.to_s - inputs.window.from_s) / DAY_S
    found: Result = {"power": POWER, "level": LEVEL, "now": detectable(view)}
    for more in (30, 90):
        found[f"in_{more}_days"] = detectable(view, 1.0 + more / days)
    return {"tolerance": query.tolerance, "detectable": found}


def _around(pane: Pane, view: View) -> Result:
    counts = pane.counts
    return {
        **counts,
        **_histograms(pane, counts),
        "weight": pane.weight,
        **_units(pane),
        "raters": view.pane_query.raters,
        "scope": view.scope,
    }


def _named(found: dict[str, Result], names: list[str] | None) -> dict[str, Result]:
    """Name the classes of errors over cases as the model declares them."""
    for each in found.values():
        if names and "classes" in each:
            each["classes"] = [names[int(k)] if k.isdecimal() else k for k in each["classes"]]
    return found


def _histograms(pane: Pane, counts: dict[str, int]) -> Result:
    """Plain histograms by what they count; several may count the same predictions, so the largest number is added."""
    stored = pane.histograms
    if stored.is_empty:
        return {}
    found = [
        {
            **dict(zip(("kind", "class", "raters", "edges"), key.split("|"), strict=True)),
            "weight": stored.weight(key),
        }
        | {"n_predictions": stored.n_predictions(key)}
        for key in sorted(stored.blocks)
    ]
    most = max((stored.n_predictions(key) or 0 for key in stored.blocks), default=0)
    return {"n_predictions": counts["n_predictions"] + most, "histograms": found}


def _units(pane: Pane) -> Result:
    """Where units come from, and how many came in more than one batch or pane and so count more than once."""
    split_units = pane.units_split
    found: Result = {"unit_source": pane.unit_source, "n_units_split": split_units["n"]}
    return found | ({"n_units_split_estimated": True} if split_units["estimated"] else {})


KIND = ResultKind(
    MetricsQuery,
    compute,
    accumulators,
    compare,
    compared_accumulators=("sample",),
    is_slow=is_slow,
)
