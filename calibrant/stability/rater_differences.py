"""Each named rater of two windows, or two models: the difference of a metric with that rater's labels alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calibrant.core.arrays import Ints
from calibrant.core.batch import Batch
from calibrant.core.documents import Result
from calibrant.core.query import PaneQuery
from calibrant.inference.metrics_differences import differences
from calibrant.inference.seeds import SEED
from calibrant.stability.rater_baselines import view_of_rater

# An interval of a difference takes some 0.1 s of CPU.
MAX_COMPARED = 16
_SHOWN = ("against", "difference", "difference_interval", "difference_method", "difference_reason")


@dataclass(frozen=True)
class LabelsByRater:
    """Rows with the class that each named rater gave them, int64 (n,), -1 without a rating."""

    batch: Batch
    raters: Mapping[str, Ints]


def rater_differences(
    mine: LabelsByRater,
    theirs: LabelsByRater | None,
    slug: str,
    pane_query: PaneQuery,
    seed: int = SEED,
) -> dict[str, Result]:
    """Return by rater of this side: the other side's value, the difference and its interval, or the reason why there is none.

    Parameters
    ----------
    mine, theirs : rows of both sides, of the same task and classes; None where the other side has no records
    slug : the metric
    pane_query : bins and the like
    seed : of intervals
    """
    if theirs is None:
        return {name: _nothing("no_records") for name in mine.raters}
    result: dict[str, Result] = {}
    for number, name in enumerate(mine.raters):
        if name not in theirs.raters:
            result[name] = _nothing("unknown_rater")
            continue
        if number >= MAX_COMPARED:
            result[name] = _nothing("too_many_raters")
            continue
        views = [
            view_of_rater(side.batch, name, side.raters[name], pane_query)
            for side in (mine, theirs)
        ]
        if views[0] is None or views[1] is None:
            result[name] = _nothing("no_data")
            continue
        found = differences(views[0], views[1], [slug], seed)[slug]
        result[name] = {key: found[key] for key in _SHOWN if key in found}
    return result


def _nothing(reason: str) -> Result:
    return {
        "against": None,
        "difference": None,
        "difference_interval": None,
        "difference_reason": reason,
    }
