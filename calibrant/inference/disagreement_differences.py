"""Comparison of two reports of rater disagreement: the difference of each number, with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from calibrant.core.documents import Result
from calibrant.core.view import NoResultError, View
from calibrant.inference.pairing import (
    INDEPENDENT,
    Bounds,
    Ratio,
    difference_interval_of_two,
    difference_of,
    ratio_difference,
)
from calibrant.inference.replication import reject_if_thin
from calibrant.raters.disagreement_tables import replicated
from calibrant.raters.label_losses_by_row import Choice, rows_with_several

MEANS = ("rater_disagreement", "mean_disagreement", "disagreement_loss", "epistemic_loss")
SMOOTH = ("calibration_loss", "disagreement_ce", "concentration")


def disagreement_difference(
    view: View, other: View, mine: Mapping[str, Any], theirs: Mapping[str, Any]
) -> Result:
    """Return the differences of two results of `disagreement_report`.

    Parameters
    ----------
    view, other : with the same query
    mine, theirs : their results

    Returns
    -------
    dict by name of `MEANS` and `SMOOTH`: `value`, `against`, `difference`, `difference_interval` with its method, or
    `difference_reason`. Means are paired by replicates of units. For other numbers the intervals of both sides are combined as if they
    were independent, which is too wide for what they share.
    """
    result: Result = {}
    for name in (*MEANS, *SMOOTH):
        (value, interval), (against, other_interval) = (
            _estimate(name, each) for each in (mine, theirs)
        )
        if name in MEANS:
            made = partial(_interval_of_means, name, view, other)
        else:
            made = partial(_interval_of_two, (value, against), (interval, other_interval))
        reason = mine.get("reason") or theirs.get("reason")
        result[name] = {"value": value, "against": against}
        result[name] |= difference_of(value, against, made, reason)
    return result


def _interval_of_means(name: str, view: View, other: View) -> tuple[list[float], str]:
    mine, theirs = (_sums(name, each) for each in (view, other))
    return ratio_difference(mine, theirs, view.pane_query.ci)


def _interval_of_two(
    values: tuple[float, float], intervals: tuple[Bounds | None, Bounds | None]
) -> tuple[list[float], str]:
    one, two = intervals
    if one is None or two is None:
        raise NoResultError("no_interval", "a side has no interval")
    return difference_interval_of_two(values, (one, two), 0.0, floor=0.0), INDEPENDENT


def _estimate(name: str, result: Mapping[str, Any]) -> tuple[Any, Bounds | None]:
    """Return a number, and its interval unless it is a mean."""
    if name == "concentration":
        found = result["concentration"]
        return (None, None) if found is None else (found["value"], found["interval"])
    bounds = None if name in MEANS else result.get("calibration_loss_interval")
    if name != "disagreement_ce" or bounds is None:
        return result.get(name), bounds
    # The root is monotone, and so are its bounds.
    return result[name], [float(np.sqrt(max(bound, 0.0))) for bound in bounds]


def _sums(name: str, view: View) -> Ratio:
    """Return numerator and denominator by replicate of a mean."""
    reject_if_thin(view)
    choice = Choice.of(view)
    rows = rows_with_several(view, choice)
    if name == "mean_disagreement":
        if choice.by_ratings:
            raise NoResultError("not_replicated", "replicates weight each prediction alike")
        weight, predicted, _ = replicated(view).sum(axis=2)
        return predicted, weight
    sums = {
        "rater_disagreement": rows.irreducible,
        "disagreement_loss": rows.disagreement_loss,
        "epistemic_loss": rows.epistemic,
    }
    return sums[name], rows.weight
