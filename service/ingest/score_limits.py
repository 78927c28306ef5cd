"""Scores of `POST /v1/score`: the bound of their work, and multi-label rows.

Rows, metrics, bins, cases and raters are compared with the bytes sent before anything is computed. One unit is about 0.17 µs of CPU, as
`python -m benchmarks.request_costs` measures it, so that a body of less than 1 MB takes less than a second and 100 MB. Bins cost memory more than
time: the draws of null references have a column for each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import Any

from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery
from calibrant.metrics import requested
from calibrant.multilabel import MAX_LABELS, multilabel_report
from calibrant_server.service.http.problems import BodyTooLarge
from calibrant_server.service.ingest.body_reading import BodyReading
from calibrant_server.service.ingest.parsed_batch import ParsedBatch, indexed

SMALL_BYTES = 1_000_000
MAX_WORK = 4_500_000
WORK_PER_BYTE = 90
_ROW, _ROW_OF_RATERS, _RATING, _RATER = 60, 120, 18, 6_000
_METRIC, _BIN = 20_000, 1_300
# Metrics that order the rows again and again, or smooth them, whatever their number.
_SLOW, _SLOW_METRIC = {"auc", "ks", "kuiper", "smooth_ece", "zhang_kde_ece", "kde_ece"}, 250_000
# Metrics that compare rows with each other, 2,000 at most; and for each row in addition.
PAIRWISE = {"skce", "canonical_ce"}
_PAIRS, _MAX_PAIRED, _ROW_OF_PAIRS = 4_200_000, 2_000, 75
# Sections that repeat their work for each case, and for each class of it.
_CASE = {
    "stability_by_case": 35_000,
    "cases": 9_000,
    "by_case": 20_000,
    "alpha_calibration": 20_000,
}
_CLASS_OF_CASE = {"cases": 400}
_SECTION, _ROW_OF_SECTION = (
    100_000,
    {"stability_by_case": 70, "compat": 220, "by_case": 10, "cases": 10},
)


def reject_costly_score(
    n_rows: int,
    metrics: Collection[str],
    sent_bytes: int,
    *,
    bins: int = 15,
    sections: Collection[str] = (),
    n_classes: int = 2,
    n_ratings: int = 0,
    n_raters: int = 0,
    n_cases: int = 0,
) -> None:
    """Reject a batch whose scores cost more than its bytes allow.

    Parameters
    ----------
    metrics : requests by their keys
    sent_bytes : size of the body as sent
    bins : of the metrics whose request sets no other number
    sections : that are included
    n_ratings : of named raters; 0 if no rater is named
    n_raters : number of their names
    n_cases : number of cases

    Raises
    ------
    BodyTooLarge
        The detail has the number of rows that these metrics allow.
    """
    found = requested(list(metrics))
    n_pairwise = sum(each.metric.slug in PAIRWISE for each in found)
    row = _ROW + len(metrics) + _ROW_OF_PAIRS * n_pairwise
    if n_ratings:
        row += _ROW_OF_RATERS + _RATING * len(metrics) * n_ratings // n_rows
    row += sum(_ROW_OF_SECTION.get(each, 0) for each in sections)
    case = sum(_CASE.get(each, 0) + _CLASS_OF_CASE.get(each, 0) * n_classes for each in sections)
    n_bins = sum(
        int(dict(each.options).get("bins", bins)) for each in found if "bins" in each.metric.options
    )
    fixed = _METRIC * len(found) + _BIN * n_bins + _RATER * n_raters * len(metrics)
    fixed += _SLOW_METRIC * sum(each.metric.slug in _SLOW for each in found)
    fixed += case * n_cases + _SECTION * len(sections)
    allowed = MAX_WORK + WORK_PER_BYTE * max(0, sent_bytes - SMALL_BYTES)

    def work(n: int) -> int:
        pairs = _PAIRS * n_pairwise * min(n, _MAX_PAIRED) ** 2 // _MAX_PAIRED**2
        return fixed + row * n + pairs

    if work(n_rows) > allowed:
        limit = max(0, bisect_right(range(n_rows), allowed, key=work) - 1)
        named = f", {n_ratings} ratings of {n_raters} raters" if n_raters else ""
        named += f", {_named(sections)} of {n_cases} cases" if case and n_cases else ""
        named += f", {n_bins} bins" if _BIN * n_bins > allowed // 4 else ""
        raise BodyTooLarge(
            f"Received {n_rows} rows{named} and {len(metrics)} metrics in {sent_bytes} bytes; expected at most {limit} rows. "
            "Send fewer rows, or request less; `calibrant.evaluate` of the library has no such limit."
        )


def _named(sections: Collection[str]) -> str:
    """Return the sections that repeat their work for each case."""
    found = [each.removesuffix("_by_case") for each in sections if each in _CASE]
    return " and ".join(found)


_TAKEN = ("probabilities", "logits", "labels", "ids", "units", "cases", "weights")
# Of each label, with its temperature; and of a bin beyond the usual number.
_LABEL, _METRIC_OF_LABEL, _USUAL_BINS = 24_000, 9_000, 100


def multilabel_scores(
    posted: ParsedBatch,
    reading: BodyReading,
    pane_query: PaneQuery,
    metrics: list[str],
    sent_bytes: int,
) -> Result:
    """Return the scores of each label and their means.

    Raises
    ------
    CalibrationInputError
        A column that multi-label rows do not have, or a value that is not allowed.
    BodyTooLarge
        The scores cost more than the bytes allow.
    """
    columns = {name: each for name, each in posted.columns.items() if each is not None}
    given = columns if posted.annotations is None else ["annotations"]
    for name in given:
        if name not in _TAKEN:
            detail = f"Received {name} of multi-label rows; expected {', '.join(_TAKEN)}."
            raise CalibrationInputError.at(f"/{name}", "not_taken", detail)
    plain = {name: indexed(each) for name, each in columns.items()}
    labels = plain.get("labels", [])
    reject_costly_labels(labels, metrics, sent_bytes, pane_query.bins)
    arguments: dict[str, Any] = {
        "classes": reading.class_names, "normalize": reading.normalize, "ignore_label": list(reading.ignored) or None,
        **dict.fromkeys(_TAKEN), **plain,
    }  # fmt: skip
    try:
        return multilabel_report(arguments, pane_query, metrics).to_dict()
    except CalibrationInputError as error:
        raise error.each(posted.place) from error


def reject_costly_labels(
    rows: Sequence[Any], metrics: Collection[str], sent_bytes: int, bins: int
) -> None:
    """Reject multi-label rows whose scores cost more than their bytes allow; above `MAX_LABELS`, the library says so.

    Parameters
    ----------
    rows : the labels of each row

    Raises
    ------
    BodyTooLarge
        The detail has the number of labels, or of rows, that these metrics allow.
    """
    n_labels = next((len(row) for row in rows if hasattr(row, "__len__")), 1)
    if n_labels > MAX_LABELS:
        return
    found = requested(list(metrics))
    slow = _SLOW_METRIC * sum(each.metric.slug in _SLOW for each in found)
    of_label = _LABEL + _METRIC_OF_LABEL * len(found) + slow + _BIN * max(0, bins - _USUAL_BINS)
    allowed = MAX_WORK + WORK_PER_BYTE * max(0, sent_bytes - SMALL_BYTES)
    if of_label * n_labels > allowed:
        raise BodyTooLarge(
            f"Received {n_labels} labels and {len(metrics)} metrics in {sent_bytes} bytes; expected at most {allowed // of_label} labels. "
            "Send fewer labels, or request less; `calibrant.evaluate` of the library has no such limit."
        )
    reject_costly_score(max(n_labels * len(rows), 1), metrics, sent_bytes, bins=bins)
