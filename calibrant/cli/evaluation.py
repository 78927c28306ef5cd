"""Evaluation of checked predictions: metrics, reliability, temperature, subgroups and comparison, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calibrant.calibrators.temperature.fit import fit_temperature_exact
from calibrant.cli.input_files.scored_data import ScoredData
from calibrant.core.batch import Batch, Ratings
from calibrant.core.batch_sums import BatchSums
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.grid import Edges
from calibrant.core.query import Bins, PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.figures.base import class_named, scope_of
from calibrant.figures.reliability import MAX_PANELS
from calibrant.inference.detectable import detectable
from calibrant.inference.metrics_differences import differences
from calibrant.inference.reliability_table import reliability
from calibrant.inference.slice_test import calibration_test
from calibrant.input.label_shares import reject_policy, reject_without_number
from calibrant.library_arguments import filled, view_of_rows
from calibrant.library_of_panes import report_of
from calibrant.metrics import DEFAULT_METRICS, accumulators_for, requested
from calibrant.peers.peer_comparison import METRICS, compared
from calibrant.raters.agreement import agreements, places_of
from calibrant.raters.label_statistics import disagreement
from calibrant.raters.odd_rater import odd_rater
from calibrant.results import DecisionCurve, ReliabilityTable, Report, Temperature
from calibrant.results.decision_curve import decision_curve_of, thresholds_of
from calibrant.results.metric_requests import scopes_by_index

PERIODS = (30, 90)

Step = Callable[[str], None]


@dataclass(frozen=True)
class EvaluationSettings:
    """How the data are evaluated.

    Attributes
    ----------
    metrics : slugs separated by commas, None for the default ones
    bins, edges, raters, scope, ci : as in `calibrant.evaluate`
    tolerance : largest acceptable calibration error, None if none was set
    days : number of days that the data cover, None if not known
    thresholds : decision thresholds, whose net benefit is computed with the metrics
    compat : "all", or names of other libraries separated by commas, whose values are computed too; None for none
    """

    metrics: str | None = None
    bins: Bins = 15
    raters: str = "pooled"
    scope: str | None = None
    ci: float = 0.95
    tolerance: float | None = None
    days: float | None = None
    thresholds: tuple[float, ...] = ()
    compat: str | None = None
    edges: Edges = "right"

    def of_classes(self, classes: Sequence[str] | None) -> EvaluationSettings:
        """Return the settings with the classes of scopes by index, where the classes have names."""
        if classes is None:
            return self
        scope, slugs = scopes_by_index(self.scope, keys_of(replace(self, thresholds=())), classes)
        return replace(self, scope=scope, metrics=None if self.metrics is None else ",".join(slugs))

    def query(self) -> PaneQuery:
        """Return the query of a view."""
        return PaneQuery(
            bins=self.bins, edges=self.edges, raters=self.raters, scope=self.scope, ci=self.ci
        )


@dataclass
class FileEvaluation:
    """Results of `evaluated`.

    Attributes
    ----------
    data, settings : what was evaluated, and how
    report, reliability, temperature : of all rows
    detectable : by period
    subgroups : report by value of the slice
    readers : by reader, as `ReportContents` has them; empty unless several readers are named
    odd_reader : the one who differs from the others, as `odd_rater` returns it
    compared : metrics with their difference from the other predictions, None without
    decision_curve : of all rows, where decision thresholds were given
    class_reliability : by class, of 3 to 36 classes
    class_errors : as `ReportContents` has them; empty without a tolerance
    compat : by library, as `calibrant.compat` returns it; None if not requested
    """

    data: ScoredData
    settings: EvaluationSettings
    report: Report
    reliability: ReliabilityTable
    temperature: Temperature
    detectable: dict[str, Result]
    subgroups: dict[str, Report] = field(default_factory=dict)
    readers: list[Result] = field(default_factory=list)
    odd_reader: Result | None = None
    compared: dict[str, Result] | None = None
    decision_curve: DecisionCurve | None = None
    class_reliability: dict[str, ReliabilityTable] = field(default_factory=dict)
    class_errors: dict[str, Result] = field(default_factory=dict)
    compat: Result | None = None

    @property
    def ratings_per_prediction(self) -> dict[str, int]:
        """Number of ratings, as text, to number of predictions."""
        batch = self.data.batch
        found = Counter((batch.row_total // batch.notes.per_rating).tolist())
        return {str(n): found[n] for n in sorted(found)}

    @property
    def rater_disagreement(self) -> float | None:
        """Share of pairs of ratings of one prediction that differ; None without pairs."""
        batch = self.data.batch
        several = batch.row_total > batch.notes.per_rating
        if not several.any():
            return None
        return float(disagreement(batch.label_counts[several]).mean())


def evaluated(
    data: ScoredData, settings: EvaluationSettings, step: Step, other: ScoredData | None = None
) -> FileEvaluation:
    """Evaluate predictions; `step` is called with the name of each step before it.

    Raises
    ------
    CalibrationInputError
        An unknown metric, or a setting out of its range.
    """
    slugs = keys_of(settings)
    if data.batch.notes.has_shares:
        reject_policy(settings.raters)
        reject_without_number(1 if settings.compat is None else data.batch.notes.per_rating)
    step("fill")
    view = _view(data.batch, slugs, settings)
    report = _report(view, slugs, step)
    step("reliability")
    table = ReliabilityTable.from_dict(reliability(view))
    step("temperature")
    fitted = Temperature.from_dict(
        fit_temperature_exact(data.batch, raters=settings.raters, ci=settings.ci)
    )
    found = FileEvaluation(
        data, settings, report, table, fitted, detectable_by_period(view, settings)
    )
    if 2 < data.batch.n_classes <= MAX_PANELS:
        found.class_reliability = _by_class(data, settings)
    if settings.tolerance is not None and view.scope == "top_label":
        found.class_errors = _class_errors(data, settings)
    if settings.thresholds:
        found.decision_curve = decision_curve_of(view, thresholds_of(None))
    if data.slices is not None:
        for name in sorted({each for each in data.slices if each is not None}):
            step(f"subgroup {name}")
            rows = np.flatnonzero(np.array([each == name for each in data.slices]))
            part = data.batch.take(rows)
            of_part = _view(part, ["ece"], settings)
            measured = report_of(of_part, ["ece"])
            about = {**measured.about, "test": calibration_test(of_part)}
            found.subgroups[name] = Report(measured, about)
    found.odd_reader = odd_rater(
        data.by_reader, data.batch.n_classes, BatchSums(data.batch).unit_index
    )
    agreed = agreements(data.by_reader, data.batch.label_counts, places_of(data.batch.cases))
    for place, name in enumerate(data.readers):
        step(f"reader {name}")
        found.readers.append(_reader(data, place, settings) | agreed[name])
    if settings.compat is not None:
        step("other libraries")
        found.compat = _compat(data.batch, settings)
    if other is not None:
        step("comparison")
        # The results above are those without a comparison: there, the content of a row is what it is resampled by.
        mine = view if data.paired is data.batch else _view(data.paired, slugs, settings)
        found.compared = differences(mine, _view(other.paired, slugs, settings), slugs)
    return found


def _reader(data: ScoredData, place: int, settings: EvaluationSettings) -> Result:
    """Return the results against the ratings of one reader."""
    assert data.ratings is not None
    given = data.ratings[:, place]
    rows = np.flatnonzero(given >= 0)
    one = Ratings(rows, given[rows], np.ones(len(rows), np.int64))
    slugs = ["ece"] if data.batch.cases is None else ["ece", "dice"]
    report = report_of(_view(replace(data.batch, ratings=one), slugs, settings), slugs)
    return {
        "name": data.readers[place],
        "n_ratings": len(rows),
        "metrics": report.to_dict()["metrics"],
    }


def _compat(batch: Batch, settings: EvaluationSettings) -> Result:
    view = _view(batch, METRICS, settings)
    names = (settings.compat or "").split(",")
    try:
        if names == ["all"]:
            return compared(view)
        return {name: each for peer in names for name, each in compared(view, peer.strip()).items()}
    except NoResultError as rejection:
        raise CalibrationInputError.at("/compat", rejection.reason, rejection.detail) from rejection


def keys_of(settings: EvaluationSettings, default: tuple[str, ...] = DEFAULT_METRICS) -> list[str]:
    """Return the requested metrics by their canonical keys, the net benefit at each decision threshold last."""
    listed = default if settings.metrics is None else settings.metrics
    at_thresholds = [f"net_benefit(threshold={each:g})" for each in settings.thresholds]
    found = [*requested(listed), *(requested(at_thresholds) if at_thresholds else [])]
    return list(dict.fromkeys(each.key for each in found))


def n_steps(settings: EvaluationSettings, data: ScoredData, compares: bool) -> int:
    """Return how often `evaluated` calls `step`."""
    subgroups = len({each for each in data.slices or () if each is not None})
    others = subgroups + len(data.readers) + compares + (settings.compat is not None)
    return len(keys_of(settings)) + 3 + others


def _view(batch: Batch, slugs: Iterable[str], settings: EvaluationSettings) -> View:
    return View(
        filled(batch, accumulators_for(slugs) | accumulators_for(["ece"])), settings.query(), batch
    )


def _by_class(data: ScoredData, settings: EvaluationSettings) -> dict[str, ReliabilityTable]:
    """Return the reliability table of each class against the rest."""
    query = settings.query()
    view = view_of_rows(data.batch, replace(query, scope="class:0"), ())
    return {
        class_named(k, data.classes): ReliabilityTable.from_dict(
            reliability(view.with_query(replace(query, scope=f"class:{k}")))
        )
        for k in range(data.batch.n_classes)
    }


def _class_errors(data: ScoredData, settings: EvaluationSettings) -> dict[str, Result]:
    """Return the ECE of each class against the rest, of two classes that of the second; none of more classes than `MAX_PANELS`."""
    n_classes, query = data.batch.n_classes, settings.query()
    if n_classes > MAX_PANELS:
        return {}
    view = view_of_rows(data.batch, replace(query, scope="class:0"), ["ece"])
    found = {}
    for k in range(n_classes) if n_classes > 2 else [1]:
        of_class = view.with_query(replace(query, scope=f"class:{k}"))
        score = scope_of({"scope": f"class:{k}", "classes": list(data.classes or ())})
        found[score] = report_of(of_class, ["ece"])["ece"].to_dict()
    return found


def _report(view: View, slugs: list[str], step: Step) -> Report:
    """Compute one metric after the other."""
    found: Result = {}
    about: Mapping[str, Any] = {}
    for slug in slugs:
        step(slug)
        one = report_of(view, [slug])
        found |= dict(one)
        about = one.about
    return Report(found, about)


def detectable_by_period(view: View, settings: EvaluationSettings) -> dict[str, Result]:
    """Return the smallest detectable errors of these data, and of so many more days of them."""
    if view.notes.per_rating > 1:
        return {}
    found = {"now": detectable(view)}
    if settings.days is not None:
        for more in PERIODS:
            found[f"in_{more}_days"] = detectable(view, 1.0 + more / settings.days)
    return found
