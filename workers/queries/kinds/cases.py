"""Every case of a window with its errors, their variation over cases, and the dataset reliability histogram."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.input.names import MAX_LENGTH
from calibrant.metrics import MetricRequest, requested
from calibrant.metrics.case_metric import CaseMetric
from calibrant.results.reads import Raters
from calibrant.segmentation.case_comparison import compare_case_errors
from calibrant.segmentation.case_errors import case_errors
from calibrant.segmentation.case_options import AVERAGE, BACKGROUND
from calibrant.segmentation.case_report import case_reliability, cases_of
from calibrant.segmentation.case_sensitivity import sensitivity
from calibrant_server.workers.queries.kind import (
    Against,
    Inputs,
    ResultKind,
    reject_other_classes,
    side_name,
)
from calibrant_server.workers.queries.query import (
    MIN_COUNT,
    Including,
    Query,
    include_field,
)
from calibrant_server.workers.store.model_config import ModelConfig

MAX_BINS = 100
PARTS = ("sensitivity",)


class CaseParameters(Including):
    """How cases are binned and which classes count."""

    parts: ClassVar[tuple[str, ...]] = PARTS

    metric: str = Field(
        "ml1_ece",
        max_length=400,
        description="One of the ml1 metrics. Its options apply to all: "
        "ml1_ece(background=in,edges=left,membership=soft,missing=skip_class).",
    )
    bins: int = Field(
        15, ge=1, le=MAX_BINS, description="Number of bins; a divisor of 600, for soft bins of 300."
    )
    raters: Raters = "pooled"
    case: str | None = Field(
        None, max_length=MAX_LENGTH, description="Name of a case whose reliability table is added."
    )
    include: str | None = include_field(PARTS)

    def resolved(self, config: ModelConfig) -> Query:
        """Return the query of the kind, with the canonical metric.

        Raises
        ------
        CalibrationInputError
            Not a metric of cases, or a part that cannot be included.
        """
        request = self.request
        if not isinstance(request.metric, CaseMetric) or AVERAGE.name in dict(request.options):
            detail = "Expected one of ml1_ece, ml1_ace and ml1_mce without `average`: the response has every average."
            raise CalibrationInputError.at("/metric", "one_of", detail)
        fields = {name: getattr(self, name) for name in CaseParameters.model_fields}
        fields |= {"metric": request.key, "include": self.canonical_include()}
        return CasesQuery.model_construct(**fields)

    @property
    def request(self) -> MetricRequest:
        """The metric with the options that hold."""
        return requested([self.metric], "/metric")[0]

    @property
    def counts_background(self) -> bool:
        """Whether class 0 counts."""
        return dict(self.request.options).get(BACKGROUND.name, BACKGROUND.default) == "in"

    def pane_query(self) -> PaneQuery:
        """Return the query of the tables of cases."""
        shared = PaneQuery(bins=self.bins, raters=self.raters, own_bins=True)
        return self.request.pane_query(shared)


class CasesQuery(CaseParameters):
    """Which cases, how fine the histogram of their frequencies is, and which bins of a case its boxes leave out."""

    kind: ClassVar[str] = "cases"

    frequency_bins: int | None = Field(None, ge=1, le=MAX_BINS)
    min_count: float = MIN_COUNT

    def pane_query(self) -> PaneQuery:
        return replace(super().pane_query(), min_count=self.min_count)


def accumulators(query: CasesQuery) -> Iterable[str]:
    """Counts, plain histograms, and the tables of cases."""
    return ("counts", "histograms", "cases")


def compute(query: CasesQuery, inputs: Inputs) -> Result:
    """Cases, averages, boxes and histogram; classes by their names where the model declares them.

    Raises
    ------
    CalibrationInputError
        Bins that stored cases cannot give exactly, or a case of which no table is stored.
    """
    view = View(inputs.pane, query.pane_query())
    found = cases_of(view, query.frequency_bins)
    if found.get("reason") == "bins_not_exact":
        raise CalibrationInputError.at("/bins", "bins_not_exact", found["detail"])
    names = inputs.config.classes
    if "classes" in found:
        found["classes"] = [named(each, names) for each in found["classes"]]
    if query.case is not None:
        found["case"] = _one_case(view, query.case, names)
    if "sensitivity" in query.included and not found.get("reason"):
        found["sensitivity"] = sensitivity(view)
    return found


def compare(query: CasesQuery, inputs: Inputs, other: Inputs, against: Against) -> Result:
    """The same, with `comparison`: paired tests by measure; None with a `comparison_reason` where a side has no cases.

    Raises
    ------
    CalibrationInputError
        As `compute`, or models that cannot be compared.
    """
    reject_other_classes(inputs.config, other.config)
    found = compute(query, inputs) | {"against": side_name(against, other)}
    pane_query = query.pane_query()
    try:
        mine, theirs = (case_errors(View(each.pane, pane_query)) for each in (inputs, other))
    except NoResultError as rejection:
        return found | {"comparison": None, "comparison_reason": rejection.reason}
    compared = compare_case_errors(mine, theirs, inputs.seed)
    for measure in compared.values():
        measure["by_class"] = [
            each | {"class": named(each["class"], inputs.config.classes)}
            for each in measure["by_class"]
        ]
    return found | {"comparison": compared}


def _one_case(view: View, case: str, names: list[str] | None) -> Result:
    try:
        found = case_reliability(view, case)
    except NoResultError as rejection:
        raise CalibrationInputError.at("/case", rejection.reason, rejection.detail) from rejection
    return found | {
        "classes": [each | {"class": named(each["class"], names)} for each in found["classes"]]
    }


def named(index: str, names: list[str] | None) -> str:
    """The declared name of the class with this index."""
    return names[int(index)] if names and index.isdecimal() else index


KIND = ResultKind(CasesQuery, compute, accumulators, compare)
