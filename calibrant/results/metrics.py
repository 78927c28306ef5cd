"""Any set of metrics over a window."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from calibrant.core.pane import Pane
from calibrant.core.view import View
from calibrant.figures.estimates import draw_metrics
from calibrant.inference.detectable import LEVEL, POWER, detectable
from calibrant.inference.metrics_differences import differences
from calibrant.inference.slice_test import calibration_test
from calibrant.metrics import (
    DEFAULT_METRICS,
    Estimate,
    accumulators_for,
    compute_metrics,
    is_error,
)
from calibrant.metrics.requests import shared_options, split
from calibrant.raters.label_coverage import PARTS, coverage
from calibrant.results.base import Result, may_say, only, says, short_estimate
from calibrant.results.estimate_values import EstimateValues
from calibrant.results.metric_requests import reject_untaken, requests_in
from calibrant.results.metric_work import reject_costly_metrics
from calibrant.results.models import Model
from calibrant.results.queries import DETAILS, EdgesQuery, costly_parts, in_order, parts_of
from calibrant.results.reads import Plain, Raters, State, label_policy, level, other_side, read
from calibrant.results.tables import Table, Values, with_ends

MAX_QUICK_OPTIONS = 12
# The part that slices are judged by.
TEST = "test"
# What a response without details has.
SHORT = frozenset({
    "model", "window", "slice", "state_version", "n_predictions", "n_labelled", "n_ratings", "n_units", "raters", "scope",
    "metrics", "label_coverage", "tolerance", "detectable", "against", "clock", "sealed_to", "matured",
    "every_s", "series", "events", "by", "slices", "slice_test", "test", "warnings", "task", "n_labels",
})  # fmt: skip
COVERAGE = frozenset({"coverage", "n_predictions", "n_labelled"})
TABLE = Table(
    {
        "model": "text", "slice": "text", "from": "time", "to": "time", "metric": "text", "class": "integer",
        "value": "number", "interval_low": "number", "interval_high": "number", "null_mean": "number", "null_q95": "number",
        "above_null": "flag", "tolerance_verdict": "text", "difference": "number", "difference_low": "number",
        "difference_high": "number", "n": "integer", "n_ratings": "integer", "n_effective": "number", "reason": "text",
    },
    lambda found: _rows(found),
)  # fmt: skip
MetricBinning = Literal["equal_width", "equal_mass", "hard", "soft", "spline", "gaussian"]


@dataclass(frozen=True, kw_only=True)
class MetricsQuery(EdgesQuery):
    """Which metrics, and how they are computed."""

    metrics: str = says(
        "Slugs separated by commas, each with its options in brackets: ece,lp_ece(order=3). "
        "Default: 12 metrics. GET /v1/metrics lists all.",
        ",".join(DEFAULT_METRICS),
        min_length=1,
        max_length=4000,
    )
    binning: MetricBinning = says(  # type: ignore[assignment]
        "`hard` and `soft` are memberships of the `ml1_*` metrics; `spline` and `gaussian` need raw rows.",
        "equal_width",
    )
    tolerance: float | None = says(
        "Largest acceptable calibration error, set beforehand. Adds `tolerance_verdict` to each and `detectable` to the result.",
        None,
        ge=0,
        le=1,
    )
    raters: Raters = label_policy()
    ci: float = level()
    include: str | None = costly_parts((DETAILS, TEST))

    def resolved(self, model: Model, given: Collection[str]) -> Mapping[str, Any]:
        requests = requests_in(self.metrics, model, shared=shared_options(self.binning))
        reject_untaken(self, given, requests, "/metrics")
        listed = ",".join(each.key for each in requests)
        found = {"metrics": listed, **super().resolved(model, given)}
        reject_costly_metrics("/metrics", requests, bins=found["bins"])
        return found | {"include": in_order(self.include, (DETAILS, TEST))}

    @property
    def listed(self) -> list[str]:
        """The requested metrics, one by one."""
        return split(self.metrics)


@dataclass(frozen=True, kw_only=True, repr=False)
class Metrics(Result):
    """Metrics of a model over a window."""

    n_predictions: int | None = None
    n_ratings: int | None = None
    metrics: dict[str, EstimateValues] | None = None
    label_coverage: dict[str, Any] | None = may_say(
        "Labelled share overall, by bin, its gradient in the score, delays of labels."
    )
    tolerance: float | None = may_say()
    detectable: dict[str, Any] | None = may_say(
        "With `tolerance`: the smallest intercept, change of slope and local error that are detected with 80 % power at the "
        "5 % level, with the data of `now`, `in_30_days` and `in_90_days`."
    )
    against: dict[str, Any] | None = may_say(
        "The other side: its counts, and the amount of data that both sides share."
    )
    clock: str | None = may_say(
        "`event` or `sealed`; present if the model declares a label horizon."
    )
    sealed_to: str | None = may_say(
        "End of the last sealed pane. The alarm evaluates a cohort (setting `bucket`, by default a day) once all of its panes are sealed."
    )
    matured: bool | None = may_say("Whether all of the window's cohorts are sealed.")
    series: list[dict[str, Any]] | None = may_say("With `every`: one object per part.")
    events: list[dict[str, str]] | None = may_say(
        "With `every`: dated events of the model in the window, if there are any."
    )
    slices: dict[str, dict[str, Any]] | None = may_say("With `by`: one result per value.")
    labels: dict[str, dict[str, Any]] | None = may_say(
        "Of a multi-label model, without `slice`: one result per label. `metrics` are means over labels, and have no interval."
    )
    n_labels: int | None = may_say("Of a multi-label model.")
    task: str | None = may_say("`multilabel` of such a model.")
    test: dict[str, Any] | None = may_say(
        "With `include=test`: `p_value` of the error of the bins, against a calibrated model."
    )
    slice_test: dict[str, Any] | None = may_say(
        "With `by`: which slices are worse than chance among so many explains. `flagged` has a calibrated slice with a probability of at "
        "most `level`; `worst` is the one with most evidence, not the one with the largest error."
    )


def _accumulators(query: MetricsQuery) -> frozenset[str]:
    """Return what the requested metrics read."""
    has_error = query.tolerance is not None or TEST in parts_of(query.include)
    shown = accumulators_for(["ece"], query.scope) if has_error else frozenset()
    return accumulators_for(query.listed, query.scope) | {"unit_sample", *PARTS} | shown


def _is_slow(query: MetricsQuery) -> bool:
    """Return whether many metrics have options of their own: each such metric needs its own view."""
    return sum("(" in each for each in query.listed) > MAX_QUICK_OPTIONS


def _compared(state: State, other: State, query: MetricsQuery) -> Metrics:
    """Return the metrics with the other side's value, the difference and its interval in each."""
    mine, theirs = (View(each.pane, query.pane_query()) for each in (state, other))
    found = differences(mine, theirs, query.listed, state.seed)
    return _with_counts(state, query, mine, found, against=other_side(state, other))


def _short(found: Plain) -> Plain:
    """Return the metrics of a window, and of each of its parts and slices, without details."""
    short = only(SHORT, found)
    if short.get("metrics"):
        short["metrics"] = {key: short_estimate(each) for key, each in short["metrics"].items()}
    if short.get("label_coverage"):
        short["label_coverage"] = only(COVERAGE, short["label_coverage"])
    if short.get("series"):
        short["series"] = [_short(each) for each in short["series"]]
    if short.get("slices"):
        short["slices"] = {key: _short(each) for key, each in short["slices"].items()}
    return short


def _rows(found: Values) -> Iterator[Values]:
    """Yield each metric of each part and slice; after a metric that has them, its values by class."""
    for value, each in found.get("slices", {}).items():
        yield from ({**row, "slice": f"{found['by']}:{value}"} for row in _rows(each))
    for label, each in found.get("labels", {}).items():
        yield from ({**row, "slice": f"label:{label}"} for row in _rows(each))
    for part in found.get("series", ()):
        yield from _rows({"model": found["model"], **part})
    for metric, estimate in found.get("metrics", {}).items():
        shared = {"model": found["model"], **found["window"], "metric": metric}
        yield {**shared, **with_ends(estimate)}
        for index, value in enumerate(estimate.get("by_class") or ()):
            if isinstance(value, int | float | None):
                yield {**shared, "class": index, "value": value}


@read(
    "metrics",
    tag="metrics",
    response="The metrics",
    figure=draw_metrics,
    table=TABLE,
    short=_short,
    in_parts=True,
    accumulators=_accumulators,
    compare=_compared,
    compared_accumulators=("sample",),
    is_slow=_is_slow,
)
def metrics(state: State, query: MetricsQuery) -> Metrics:
    """Compute any set of metrics over a window; as JSON, as a table with one row per metric and part, or as a figure."""
    view = View(state.pane, query.pane_query())
    return _with_counts(state, query, view, compute_metrics(view, query.listed, state.seed))


def _with_counts(
    state: State, query: MetricsQuery, view: View, found: dict[str, Plain], **more: Any
) -> Metrics:
    """Return metrics with their verdicts, the counts of the window and what it could have shown."""
    return Metrics.from_dict({
        **_counted(state.pane, view),
        **_detectable(view, query, state.days),
        **({"test": calibration_test(view, state.seed)} if TEST in parts_of(query.include) else {}),
        "metrics": _named(_judged(found, query.tolerance), state.model.classes),
        "label_coverage": coverage(state.pane, ci=query.ci),
        **more,
    })  # fmt: skip


def _judged(found: dict[str, Plain], tolerance: float | None) -> dict[str, Plain]:
    """Add the verdict against a tolerance to each calibration error."""
    if tolerance is None:
        return found
    for key, each in found.items():
        if is_error(key.partition("(")[0]):
            each["tolerance_verdict"] = Estimate.from_dict(each, key).verdict(tolerance)
    return found


def _detectable(view: View, query: MetricsQuery, days: float) -> Plain:
    """Return what the window could have shown, and what 30 and 90 more days of as many predictions could show."""
    if query.tolerance is None:
        return {}
    found: Plain = {"power": POWER, "level": LEVEL, "now": detectable(view)}
    for more in (30, 90):
        found[f"in_{more}_days"] = detectable(view, 1.0 + more / days)
    return {"tolerance": query.tolerance, "detectable": found}


def _counted(pane: Pane, view: View) -> Plain:
    counts = pane.counts
    return {
        **counts,
        **_histograms(pane, counts),
        "weight": pane.weight,
        **_units(pane),
        "raters": view.pane_query.raters,
        "scope": view.scope,
    }


def _named(found: dict[str, Plain], names: list[str] | None) -> dict[str, Plain]:
    """Name the classes of errors over cases as the model declares them."""
    for each in found.values():
        if names and "classes" in each:
            each["classes"] = [names[int(k)] if k.isdecimal() else k for k in each["classes"]]
    return found


def _histograms(pane: Pane, counts: dict[str, int]) -> Plain:
    """Plain histograms by what they count; several may count the same predictions, so the largest number is added."""
    stored = pane.histograms
    if stored.is_empty:
        return {}
    found = [
        {
            **dict(zip(("kind", "class", "raters", "edges"), key.split("|"), strict=True)),
            "weight": stored.weight(key),
            "n_predictions": stored.n_predictions(key),
        }
        for key in sorted(stored.blocks)
    ]
    most = max((stored.n_predictions(key) or 0 for key in stored.blocks), default=0)
    return {"n_predictions": counts["n_predictions"] + most, "histograms": found}


def _units(pane: Pane) -> Plain:
    """Where units come from, and how many came in more than one batch or pane and so count more than once."""
    split_units = pane.units_split
    found: Plain = {"unit_source": pane.unit_source, "n_units_split": split_units["n"]}
    return found | ({"n_units_split_estimated": True} if split_units["estimated"] else {})
