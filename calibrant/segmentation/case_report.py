"""Report on a model's cases: errors and Dice, box plots, the dataset reliability histogram."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats, ratio
from calibrant.core.documents import Result, Row
from calibrant.core.errors import check_range
from calibrant.core.grid import equal_width_bin
from calibrant.core.view import NoResultError, View
from calibrant.segmentation.case_bins import CaseBins
from calibrant.segmentation.case_errors import ERRORS, CaseErrors, case_errors, numbers, spread


def cases_of(view: View, frequency_bins: int | None = None) -> Result:
    """Return every stored case, averages over cases, and the dataset reliability histogram, as JSON-able numbers.

    Parameters
    ----------
    view : View; the query's options are those of `CaseOptions`
    frequency_bins : bins of observed frequency in the histogram. Default: the number of confidence bins.

    Returns
    -------
    dict with the options, `n_cases`, `cases` (one object per case), `summary` (by measure: macro, micro and
    micro_pooled; by class and over cases), `boxes` (by measure), `histogram`, `reliability` (by bin); and `reason`
    if there is no data.
    """
    pane_query = view.pane_query
    result: Result = {
        "raters": pane_query.raters,
        "bins": pane_query.bins,
        "edges": pane_query.edges,
        "n": view.counts["n_labelled"],
    }
    try:
        cases = case_errors(view)
    except NoResultError as rejection:
        nothing = {
            "n_cases": 0,
            "cases": [],
            "summary": None,
            "boxes": None,
            "histogram": None,
            "reliability": [],
        }
        return result | nothing | {"reason": rejection.reason, "detail": rejection.detail}
    options = cases.options
    result |= {
        "average": options.average,
        "membership": options.membership,
        "background": options.background,
        "missing": options.missing,
        "n_cases": cases.n_cases["n"],
        "n_cases_kept": cases.n_cases["kept"],
        "n_cases_estimated": cases.n_cases["estimated"],
        "n_missing": cases.n_missing,
        "classes": [cases.class_names[k] for k in cases.classes],
        "cases": _rows(cases),
        "summary": {name: _summary(cases, name) for name in (*ERRORS, "dice")},
        "boxes": {name: box(values) for name, values in _means(cases).items()},
        "histogram": reliability_histogram(
            cases, pane_query.bins if frequency_bins is None else frequency_bins
        ),
        "reliability": reliability_boxes(cases, pane_query.min_count),
    }
    bounds = {name: cases.bound(name) for name in ERRORS}
    return result | ({"error_bound": bounds} if any(bounds.values()) else {})


def case_reliability(view: View, case: str) -> Result:
    """Return one case's reliability table for each class that counts, with its errors.

    Raises
    ------
    NoResultError
        As `case_errors`, or the case has no table (`unknown_case`).
    """
    cases = case_errors(view)
    if case not in cases.names:
        raise NoResultError("unknown_case", f"no table is stored for case {case[:60]!r}")
    one = cases.counted.of_cases(np.array([cases.names.index(case)]))
    classes = []
    for slot, place in enumerate(cases.classes):
        errors = {name: numbers(error(one)[0])[slot] for name, error in ERRORS.items()}
        classes.append({"class": cases.class_names[place], **errors, "table": _table(one, slot)})
    return {"case": case, "bins": one.n_bins, "classes": classes}


def reliability_histogram(cases: CaseErrors, frequency_bins: int) -> Result:
    """Count the cases by observed frequency in each bin of confidence.

    Parameters
    ----------
    cases : CaseErrors
    frequency_bins : [lo, hi), the last closed

    Returns
    -------
    dict with `counts` int (n_classes, bins, frequency_bins); empty bins of a case are not counted. `mean` is the
    average over classes of each column's shares; `mean_frequency` and `mean_frequency_by_class` are the mean
    observed frequencies of each column, None if no case has it.

    Raises
    ------
    CalibrationInputError
        Fewer than one frequency bin, or more than 1000.

    Source
    ------
    Barfoot et al., fig. 4.
    """
    check_range("frequency_bins", frequency_bins, 1, 1000)
    bins = cases.counted
    use = bins.filled & cases.use[:, :, None]
    case, class_index, column = np.nonzero(use)
    rate = np.clip(bins.rate[case, class_index, column], 0.0, 1.0)
    row = equal_width_bin(rate, frequency_bins, "left")
    shape = (len(cases.classes), bins.n_bins, frequency_bins)
    counts = np.zeros(shape, np.int64)
    np.add.at(counts, (class_index, column, row), 1)
    n = counts.sum(axis=2, keepdims=True)
    shares = ratio(counts, n, np.nan)
    known = np.isfinite(shares)
    mean = ratio(np.nansum(shares, axis=0), known.sum(axis=0))
    total = np.zeros(shape[:2])
    np.add.at(total, (class_index, column), rate)
    size = n[:, :, 0]
    by_class = ratio(total, size, np.nan)
    pooled, pooled_size = total.sum(axis=0), size.sum(axis=0)
    frequency = ratio(pooled, pooled_size, np.nan)
    return {
        "bins": bins.n_bins,
        "frequency_bins": frequency_bins,
        "counts": counts.tolist(),
        "mean": mean.tolist(),
        "mean_frequency": numbers(frequency),
        "mean_frequency_by_class": numbers(by_class),
    }


def reliability_boxes(cases: CaseErrors, min_count: float = 0.0) -> list[Row]:
    """Return, per bin of confidence, all counted classes and cases pooled, and the frequencies of single cases.

    The observed frequencies of single cases are a box plot.

    Parameters
    ----------
    cases : CaseErrors
    min_count : bins of a case with fewer samples (mass if predictions are weighted) are left out; 50 in the paper

    Returns
    -------
    list of dict with lower, upper, weight, mean_confidence, observed_frequency, `box`; None if no case fills the
    bin. `n_left_out` is the number of cases whose bin is left out.

    Source
    ------
    Kock, Thielke et al., figs. 1 and 4: every label counts, each bin with boxes over cases.
    """
    bins = cases.counted
    use = cases.use[:, :, None]
    weight, confidence, correct = (
        (v * use).sum(axis=1) for v in (bins.weight, bins.confidence, bins.correct)
    )
    there = (weight > 0) & (weight >= bins.least)
    filled = there & (weight >= min_count)
    left_out = (there & ~filled).sum(axis=0)
    weight, confidence, correct = (np.where(filled, v, 0.0) for v in (weight, confidence, correct))
    rate, total = ratio(correct, weight, np.nan), weight.sum(axis=0)
    mean, frequency = (numbers(ratio(v.sum(axis=0), total, np.nan)) for v in (confidence, correct))
    return [
        {
            "lower": i / bins.n_bins,
            "upper": (i + 1) / bins.n_bins,
            "weight": float(total[i]),
            "mean_confidence": mean[i],
            "observed_frequency": frequency[i],
            "box": box(rate[:, i]),
            "n_left_out": int(left_out[i]),
        }
        for i in range(bins.n_bins)
    ]


def _means(cases: CaseErrors) -> dict[str, Floats]:
    """Return each measure's mean over the classes that count, of every case; nan if none does."""
    return {name: cases.by_case(name) for name in (*ERRORS, "dice")}


def _rows(cases: CaseErrors) -> list[Row]:
    bins, use = cases.counted, cases.use
    values = {name: error(bins) for name, error in ERRORS.items()} | {"dice": bins.dice}
    means = {name: numbers(mean) for name, mean in _means(cases).items()}
    counts = (bins.hit, bins.predicted - bins.hit, bins.positives - bins.hit)
    top_known = [all(each) for each in bins.top_known.tolist()]
    rows = []
    for i, case in enumerate(cases.names):
        row: Row = {"case": case, "weight": float(bins.total[i].max(initial=0.0))}
        row["present"] = bins.present[i].tolist()
        row["counted"] = use[i].tolist()
        for name, by_class in values.items():
            row[name] = {"mean": means[name][i], "by_class": numbers(by_class[i])}
        for name, column in zip(
            ("true_positive", "false_positive", "false_negative"), counts, strict=True
        ):
            row[name] = column[i].tolist() if top_known[i] else None
        rows.append(row)
    return rows


def _summary(cases: CaseErrors, name: str) -> Result:
    if name == "dice":
        found = cases.by_case("dice")
        found = found[np.isfinite(found)]
        return {
            "macro": {"value": float(found.mean()) if len(found) else None, "n": len(found)}
            | spread(found)
        }
    return {
        "macro": cases.macro(name),
        "micro": cases.micro(name, pooled=False),
        "micro_pooled": cases.micro(name, pooled=True),
    }


def _table(one: CaseBins, slot: int) -> list[Row]:
    mean, rate = numbers(one.mean[0, slot]), numbers(one.rate[0, slot])
    return [
        {
            "bin": i,
            "lower": i / one.n_bins,
            "upper": (i + 1) / one.n_bins,
            "weight": float(one.weight[0, slot, i]),
            "mean_confidence": mean[i],
            "observed_frequency": rate[i],
        }
        for i in range(one.n_bins)
    ]


Case = TypeVar("Case", bound=Mapping[str, Any])


def worst_first(rows: Iterable[Case]) -> list[Case]:
    """Return the results of cases by Dice, lowest first, then by ECE, highest first, then by name; cases without a Dice are last.

    >>> pairs = [(0.9, 0.1), (None, 0.2), (0.5, 0.1), (0.9, 0.3)]
    >>> rows = [{"case": str(i), "dice": dice, "ece": ece} for i, (dice, ece) in enumerate(pairs)]
    >>> [each["case"] for each in worst_first(rows)]
    ['2', '3', '0', '1']
    """
    return sorted(rows, key=lambda each: place_of(each["case"], each["dice"], each["ece"]))


def place_of(case: str, dice: float | None, ece: float | None) -> list[Any]:
    """Return the sort key of a case, worst first."""
    return [dice is None, dice or 0.0, -(ece or 0.0), case]


WHISKER = 1.5


def box(values: NDArray[np.float64]) -> Result | None:
    """Return the statistics of a box plot: quartiles, whiskers to the outermost values within 1.5 box heights, outliers.

    Parameters
    ----------
    values : float64 (n,), nan is ignored

    Returns
    -------
    dict, None without values.

    Source
    ------
    Tukey, Exploratory Data Analysis (1977).
    """
    found = np.sort(values[np.isfinite(values)])
    if not len(found):
        return None
    lower, median, upper = np.quantile(found, [0.25, 0.5, 0.75])
    reach = WHISKER * (upper - lower)
    inside = found[(found >= lower - reach) & (found <= upper + reach)]
    outside = found[(found < lower - reach) | (found > upper + reach)]
    # With few, distant values, the outermost value inside the limits can be within the box.
    return {
        "n": len(found),
        "mean": float(found.mean()),
        "lower_quartile": float(lower),
        "median": float(median),
        "upper_quartile": float(upper),
        "lower_whisker": float(min(inside[0], lower)),
        "upper_whisker": float(max(inside[-1], upper)),
        "outliers": outside.tolist(),
    }


SENSITIVITY_BINS = (5, 10, 20, 50, 100)


def sensitivity(view: View) -> list[Row]:
    """Return macro averages of every error at 5, 10, 20, 50 and 100 bins; soft bins of stored cases are exact at all of them.

    Returns
    -------
    list of dict with `bins`, and by error `value`, `sd` and `n`

    Raises
    ------
    NoResultError
        As `case_errors`.

    Source
    ------
    Barfoot et al., fig. 6.
    """
    found = []
    for bins in SENSITIVITY_BINS:
        batch = None if view.batch_sums is None else view.batch_sums.complete_batch
        cases = case_errors(View(view.pane, view.pane_query.without_edges(bins=bins), batch))
        averages = {name: cases.macro(name) for name in ERRORS}
        shown = ("value", "sd", "n")
        found.append(
            {"bins": bins}
            | {name: {key: each[key] for key in shown} for name, each in averages.items()}
        )
    return found
