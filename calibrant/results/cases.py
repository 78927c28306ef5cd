"""Every case of a window with its errors, their variation over cases, and the dataset reliability histogram."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import Option, PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.figures.case_reliability import draw_histogram, draw_one_case, draw_reliability_boxes
from calibrant.figures.cases import draw_boxes, draw_sensitivity
from calibrant.input.names import MAX_LENGTH
from calibrant.metrics import MetricRequest, requested
from calibrant.metrics.case_metric import CaseMetric
from calibrant.metrics.requests import parse, read_option
from calibrant.results.base import Result, may_say, says
from calibrant.results.models import Model, class_index
from calibrant.results.queries import costly_parts, in_order, parts_of
from calibrant.results.reads import Plain, Query, Raters, State, label_policy, read
from calibrant.results.tables import Table, Values
from calibrant.segmentation.case_comparison import compare_case_errors
from calibrant.segmentation.case_errors import ERRORS, case_errors
from calibrant.segmentation.case_options import AVERAGE, BACKGROUND
from calibrant.segmentation.case_report import (
    case_reliability,
    cases_of,
    place_of,
    sensitivity,
    worst_first,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_BINS = 100
MEASURES = ("dice", *ERRORS)
SENSITIVITY = "sensitivity"
CLASS = Option("class", "", "Class of the figure, by name or index. Default: all classes.")
FREQUENCY_BINS = Option(
    "frequency_bins",
    15,
    "Bins of the histogram's observed frequency. Default: `bins`.",
    low=1,
    high=MAX_BINS,
)
MIN_COUNT = Option(
    "min_count", 0.0, "Bins of a case with fewer samples are left out.", low=0.0, high=1e15
)
FIGURES: dict[str, tuple[Callable[..., Figure], tuple[Option, ...]]] = {
    "histogram": (draw_histogram, (CLASS, FREQUENCY_BINS)),
    "boxes": (draw_boxes, ()),
    "reliability": (draw_reliability_boxes, (MIN_COUNT,)),
    "case": (draw_one_case, (CLASS,)),
    SENSITIVITY: (draw_sensitivity, ()),
}
# Options of a figure on which numbers of the result depend.
OF_NUMBERS = (FREQUENCY_BINS.name, MIN_COUNT.name)


@dataclass(frozen=True, kw_only=True)
class ShownCases:
    """The figure of cases."""

    figure: str = says(
        "What an image shows: histogram, boxes, reliability, case (the one that `case` names) or sensitivity. "
        "Options in brackets: histogram(class=liver), case(class=2), histogram(frequency_bins=20), which also sets "
        "`histogram` of the response, and reliability(min_count=50), which sets its `reliability`.",
        "histogram",
        max_length=300,
        json_schema_extra={"pattern": rf"^\s*({'|'.join(FIGURES)})\s*(\(.*\))?\s*$"},
    )

    @property
    def figure_options(self) -> tuple[str, dict[str, Any]]:
        """Name and options of the figure.

        Raises
        ------
        CalibrationInputError
            An unknown figure, or an option that it does not take.
        """
        if self.figure.partition("(")[0].strip() not in FIGURES:
            detail = f"Received figure {self.figure[:60]!r}; expected one of {', '.join(FIGURES)}."
            raise CalibrationInputError.at("/figure", "one_of", detail)
        name, written = parse(self.figure, "/figure")
        options = {each.name: each for each in FIGURES[name][1]}
        read_one = {
            each: read_option(name, each, value, options, "/figure")
            for each, value in written.items()
        }
        return name, read_one


@dataclass(frozen=True, kw_only=True)
class CasesQuery(Query, ShownCases):
    """How cases are binned and which classes count; which cases of the same names they are paired with; the figure."""

    metric: str = says(
        "One of the ml1 metrics. Its options apply to all: "
        "ml1_ece(background=in,edges=left,membership=soft,missing=skip_class).",
        "ml1_ece",
        max_length=400,
    )
    bins: int = says(
        "Number of bins; a divisor of 600, for soft bins of 300.", 15, ge=1, le=MAX_BINS
    )
    raters: Raters = label_policy()
    case: str | None = says(
        "Name of a case whose reliability table is added.", None, max_length=MAX_LENGTH
    )
    include: str | None = costly_parts((SENSITIVITY,))

    def resolved(self, model: Model, given: Collection[str]) -> Mapping[str, Any]:
        request = self.request
        if not isinstance(request.metric, CaseMetric) or AVERAGE.name in dict(request.options):
            detail = "Expected one of ml1_ece, ml1_ace and ml1_mce without `average`: the response has every average."
            raise CalibrationInputError.at("/metric", "one_of", detail)
        name, options = self.figure_options
        self._check_figure(name, options, model)
        included = in_order(self.include, (SENSITIVITY,))
        return {
            "metric": request.key,
            "include": SENSITIVITY if name == SENSITIVITY else included,
            "figure": _of_numbers(name, options),
        }

    def _check_figure(self, name: str, options: Mapping[str, Any], model: Model) -> None:
        """Reject a class that does not count and a missing case."""
        if name == "case" and self.case is None:
            detail = (
                "Received figure=case without a case; expected its name. Add the parameter `case`."
            )
            raise CalibrationInputError.at("/case", "missing", detail)
        place = class_index(options[CLASS.name], model, "/figure") if options.get(CLASS.name) else 1
        if not place and not self.counts_background:
            detail = "Received class 0, the background, which does not count. Request metric=ml1_ece(background=in)."
            raise CalibrationInputError.at("/figure", "background", detail)

    @property
    def request(self) -> MetricRequest:
        """The metric with the options that hold."""
        return requested([self.metric], "/metric")[0]

    @property
    def counts_background(self) -> bool:
        """Whether class 0 counts."""
        return dict(self.request.options).get(BACKGROUND.name, BACKGROUND.default) == "in"

    def view(self, state: State) -> View:
        """Return the view of the tables of cases."""
        _, options = self.figure_options
        least = options.get(MIN_COUNT.name, MIN_COUNT.default)
        shared = PaneQuery(bins=self.bins, raters=self.raters, min_count=least, own_bins=True)
        return View(state.pane, self.request.pane_query(shared))


def _of_numbers(name: str, options: Mapping[str, Any]) -> str:
    """Return a figure with the options on which numbers of the result depend.

    >>> _of_numbers("case", {"class": "2"}), _of_numbers("histogram", {"frequency_bins": 20})
    ('histogram', 'histogram(frequency_bins=20)')
    """
    for each in OF_NUMBERS:
        if each in options:
            return f"{name}({each}={options[each]})"
    return "histogram"


def _rows(found: Values) -> Iterable[Values]:
    """Return a row per case, worst first."""
    rows = [
        {name: each[name]["mean"] if name in MEASURES else each[name] for name in TABLE.columns}
        for each in found["cases"]
    ]
    return worst_first(rows)


def _place(case: Values) -> list[Any]:
    """Return the sort key of a case of the response."""
    dice, ece = (case[name]["mean"] for name in ("dice", "ece"))
    return place_of(case["case"], dice, ece)


TABLE = Table(
    {"case": "text", "weight": "number", **dict.fromkeys(MEASURES, "number")},
    _rows,
)


def draw_cases(result: Plain, *, figure: str, classes: list[str] | None = None) -> Figure:
    """Return a figure of cases.

    Parameters
    ----------
    result : response of `GET cases`
    figure : as in `ShownCases`
    classes : names of the classes of the model
    """
    name, options = ShownCases(figure=figure).figure_options
    written = options.get(CLASS.name)
    if not written:
        return FIGURES[name][0](result)
    index = classes.index(written) if classes and written in classes else int(written)
    return FIGURES[name][0](result, of_class=index - (result.get("background") != "in"))


@dataclass(frozen=True, kw_only=True, repr=False)
class Case(Result):
    """One case; errors and Dice with `mean` over its classes and `by_class`."""

    case: str
    weight: float
    present: list[bool] = says("By class: whether it has a rating.")
    counted: list[bool] = says("By class: whether it counts in the averages.")


@dataclass(frozen=True, kw_only=True, repr=False)
class Cases(Result):
    """A page of the stored cases, averages and box plots over cases, and the dataset reliability histogram."""

    raters: str
    bins: int
    edges: str
    n: int
    n_cases: int
    n_cases_kept: int | None = may_say("Cases with their own table.")
    n_missing: int | None = may_say("Number of classes without a rating, summed over cases.")
    classes: list[str] | None = may_say("Classes that count in the averages, by name or index.")
    cases: list[Case] = says(
        "A page of the stored cases, worst first: by Dice, then by ECE, then by name."
    )
    summary: dict[str, dict[str, Any]] | None = says(
        "By measure: macro, micro and micro_pooled averages."
    )
    boxes: dict[str, Any] | None = says("By measure: the numbers of a box plot.")
    histogram: dict[str, Any] | None = says(
        "Number of cases by bin of confidence and observed frequency."
    )
    reliability: list[dict[str, Any]] = says("Reliability table by bin, with a box over cases.")
    case: dict[str, Any] | None = may_say("Tables of the requested case, one per class.")
    sensitivity: list[dict[str, Any]] | None = may_say("Averages by number of bins.")
    comparison: dict[str, Any] | None = may_say(
        "With `against`, by measure: paired t-test, Wilcoxon, permutation; `by_class`."
    )
    reason: str | None = may_say()


def _compared(state: State, other: State, query: CasesQuery) -> Cases:
    """Return the cases with paired tests by measure; with a `comparison_reason` where a side has no cases."""
    found = cases(state, query).with_values(against=other.name)
    try:
        mine, theirs = (case_errors(query.view(each)) for each in (state, other))
    except NoResultError as rejection:
        return found.with_values(comparison=None, comparison_reason=rejection.reason)
    compared = compare_case_errors(mine, theirs, state.seed)
    for measure in compared.values():
        measure["by_class"] = _named(measure["by_class"], state.model)
    return found.with_values(comparison=compared)


def _accumulators(query: CasesQuery) -> Iterable[str]:
    return ("counts", "histograms", "cases")


@read(
    "cases",
    called="listCases",
    tag="cases",
    response="A page of the cases, or a figure",
    figure=draw_cases,
    shown=ShownCases,
    paged=("cases", _place),
    table=TABLE,
    accumulators=_accumulators,
    compare=_compared,
)
def cases(state: State, query: CasesQuery) -> Cases:
    """Return the metrics of cases as JSON, page by page; all cases as CSV or Arrow; or a figure as SVG or PNG."""
    view, (_, options) = query.view(state), query.figure_options
    found = cases_of(view, options.get(FREQUENCY_BINS.name))
    if found.get("reason") == "bins_not_exact":
        raise CalibrationInputError.at("/bins", "bins_not_exact", found["detail"])
    if "classes" in found:
        found["classes"] = [_name(each, state.model) for each in found["classes"]]
    if query.case is not None:
        found["case"] = _one_case(view, query.case, state.model)
    if SENSITIVITY in parts_of(query.include) and not found.get("reason"):
        found["sensitivity"] = sensitivity(view)
    return Cases.from_dict(found)


def _one_case(view: View, case: str, model: Model) -> Plain:
    try:
        found = case_reliability(view, case)
    except NoResultError as rejection:
        raise CalibrationInputError.at("/case", rejection.reason, rejection.detail) from rejection
    return found | {"classes": _named(found["classes"], model)}


def _named(rows: list[Plain], model: Model) -> list[Plain]:
    """Return rows of classes under the names that the model declares."""
    return [each | {"class": _name(each["class"], model)} for each in rows]


def _name(index: str, model: Model) -> str:
    return model.classes[int(index)] if model.classes and index.isdecimal() else index
