"""Posted rows divided into their cases, for what is computed of each case separately."""

from __future__ import annotations

import numpy as np

from calibrant.core.arrays import Ints
from calibrant.core.batch import Batch
from calibrant.core.view import NoResultError, View
from calibrant.segmentation.case_tables import numbered

MAX_CASES = 256


def rows_of_cases(view: View) -> tuple[Batch, dict[str, Ints]]:
    """Return the labelled rows of a view, and the places of each case's among them.

    Raises
    ------
    NoResultError
        There are no rows (`needs_raw_rows`), they do not name their cases (`no_cases`), or more than 256 (`too_many_cases`).
    """
    if view.batch_sums is None:
        raise NoResultError(
            "needs_raw_rows", "what is computed of single cases needs rows: post them to score them"
        )
    batch = view.batch_sums.batch
    if batch.cases is None:
        raise NoResultError("no_cases", "no labelled prediction names its case")
    names, place = numbered(batch.cases)
    if len(names) > MAX_CASES:
        detail = f"Received {len(names)} cases; at most {MAX_CASES} are computed separately."
        raise NoResultError("too_many_cases", detail)
    order = np.argsort(place, kind="stable")
    ends = np.cumsum(np.bincount(place, minlength=len(names)))
    return batch, dict(zip(names, np.split(order, ends[:-1]), strict=True))
