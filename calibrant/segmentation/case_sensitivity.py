"""Dependence of cases' errors on the number of bins."""

from __future__ import annotations

from calibrant.core.documents import Row
from calibrant.core.view import View
from calibrant.segmentation.case_errors import ERRORS, case_errors

BINS = (5, 10, 20, 50, 100)


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
    for bins in BINS:
        batch = None if view.batch_sums is None else view.batch_sums.complete_batch
        cases = case_errors(View(view.pane, view.pane_query.without_edges(bins=bins), batch))
        averages = {name: cases.macro(name) for name in ERRORS}
        shown = ("value", "sd", "n")
        found.append(
            {"bins": bins}
            | {name: {key: each[key] for key in shown} for name, each in averages.items()}
        )
    return found
