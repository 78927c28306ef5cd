"""Comparison of two reports of rater disagreement: the difference of each number, with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.core.documents import Result
from calibrant.core.view import NoResultError, View
from calibrant.inference.pairing import (
    INDEPENDENT,
    RESAMPLED,
    Ratio,
    difference_interval_of_two,
    ratio_difference,
)
from calibrant.inference.replication import reject_if_thin
from calibrant.inference.seeds import SEED
from calibrant.raters.disagreement_tables import replicated
from calibrant.raters.label_losses_by_row import Choice, rows_with_several

MEANS = ("rater_disagreement", "mean_disagreement", "disagreement_loss", "epistemic_loss")
SMOOTH = ("calibration_loss", "disagreement_ce", "concentration")


def disagreement_difference(
    view: View, other: View, mine: Mapping[str, Any], theirs: Mapping[str, Any], seed: int = SEED
) -> Result:
    """Return the differences of two results of `disagreement_report`.

    Parameters
    ----------
    view, other : with the same query
    mine, theirs : their results
    seed : of the resamples

    Returns
    -------
    dict by name of `MEANS` and `SMOOTH`: `value`, `against`, `difference`, `difference_interval` with its method, or
    `difference_reason`. Means are paired by replicates of units. For other numbers the intervals of both sides are combined as if they
    were independent, which is too wide for what they share.
    """
    result = {name: _described(mine.get(name), theirs.get(name), mine, theirs) for name in MEANS}
    try:
        ratios = _ratios(view, other)
        for name, (one, two) in ratios.items():
            if result[name]["difference"] is not None:
                bounds = ratio_difference(one, two, view.pane_query.ci)
                result[name] |= {"difference_interval": bounds, "difference_method": RESAMPLED}
        for name in result.keys() - ratios.keys():
            result[name]["difference_reason"] = "not_replicated"
    except NoResultError as rejection:
        for each in result.values():
            each["difference_reason"] = rejection.reason
    for name in SMOOTH:
        (value, interval), (against, other_interval) = _smooth(name, mine), _smooth(name, theirs)
        result[name] = _described(value, against, mine, theirs)
        if value is None or against is None:
            continue
        if interval is None or other_interval is None:
            result[name]["difference_reason"] = "no_interval"
        else:
            bounds = difference_interval_of_two(
                (value, against), (interval, other_interval), 0.0, floor=0.0
            )
            result[name] |= {"difference_interval": bounds, "difference_method": INDEPENDENT}
    return result


def _described(
    value: Any, against: Any, mine: Mapping[str, Any], theirs: Mapping[str, Any]
) -> Result:
    result: Result = {
        "value": value, "against": against, "difference": None, "difference_interval": None,
    }  # fmt: skip
    if value is None or against is None:
        return result | {"difference_reason": mine.get("reason") or theirs.get("reason")}
    return result | {"difference": value - against}


def _smooth(name: str, result: Mapping[str, Any]) -> tuple[float | None, list[float] | None]:
    """Return value and interval of a number that is not a mean."""
    if name == "concentration":
        found = result["concentration"]
        return (None, None) if found is None else (found["value"], found["interval"])
    bounds = result.get("calibration_loss_interval")
    if name == "calibration_loss" or bounds is None:
        return result[name], bounds
    # The root is monotone, and so are its bounds.
    return result[name], [float(np.sqrt(max(bound, 0.0))) for bound in bounds]


def _ratios(view: View, other: View) -> dict[str, tuple[Ratio, Ratio]]:
    sides = [_sums(each) for each in (view, other)]
    return {name: (sides[0][name], sides[1][name]) for name in sides[0]}


def _sums(view: View) -> dict[str, Ratio]:
    """Return numerator and denominator by replicate of each mean."""
    reject_if_thin(view)
    choice = Choice.of(view)
    rows = rows_with_several(view, choice)
    sums = {
        "rater_disagreement": (rows.irreducible, rows.weight),
        "disagreement_loss": (rows.disagreement_loss, rows.weight),
        "epistemic_loss": (rows.epistemic, rows.weight),
    }
    if choice.by_ratings:
        return sums
    weight, predicted, _ = replicated(view).sum(axis=2)
    return sums | {"mean_disagreement": (predicted, weight)}
