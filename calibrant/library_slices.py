"""Evaluation by slice: a report of each value, and a test of which are worse than chance among so many explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.core.query import PaneQuery
from calibrant.inference.slice_test import calibration_test, slice_test
from calibrant.library_arguments import labelled_batch, view_of_rows
from calibrant.library_of_panes import report_of
from calibrant.results import Report, SlicedReport

MAX_SLICES = 1000


def sliced_report(
    by: Any, arguments: Mapping[str, Any], pane_query: PaneQuery, slugs: Sequence[str]
) -> SlicedReport:
    """Return the report of all rows with that of each value of `by`.

    Raises
    ------
    CalibrationInputError
        Another number of values than rows, values that are no names, or more than 1,000 different ones; a task.
    """
    if arguments.get("task") is not None:
        detail = f"Received by with task={arguments['task']!r:.60}, whose labels have reports of their own. Remove one of them."
        raise CalibrationInputError.at("/by", "not_taken", detail)
    batch = labelled_batch(dict(arguments))
    names = _names(by, arguments, batch)
    different = sorted(set(names))
    if len(different) > MAX_SLICES:
        detail = f"Received {len(different)} different values; expected at most {MAX_SLICES}."
        raise CalibrationInputError.at("/by", "range", detail)
    place = {name: i for i, name in enumerate(different)}
    places = np.array([place[each] for each in names])
    slices, tests = {}, {}
    for i, name in enumerate(different):
        view = view_of_rows(batch.take(np.flatnonzero(places == i)), pane_query, slugs)
        tests[name] = calibration_test(view)
        slices[name] = report_of(view, slugs)
    complete: Report = report_of(view_of_rows(batch, pane_query, slugs), slugs)
    return SlicedReport(dict(complete), complete.about, slices, slice_test(tests))


def _names(by: Any, arguments: Mapping[str, Any], batch: Batch) -> list[str]:
    """Return the value of each row as a name, read as names of cases are."""
    try:
        named = labelled_batch({**arguments, "cases": by}).cases
    except CalibrationInputError as error:
        raise error.each(_of_by) from None
    assert named is not None and len(named) == batch.n
    return list(named.tolist())


def _of_by(violation: Violation) -> Violation:
    pointer = violation.pointer.replace("/cases", "/by", 1)
    return Violation(pointer, violation.rule, violation.detail.replace("cases", "by"))
