"""Reweighted pane in which every independent unit has weight one, to fit temperatures and maps to units instead of predictions.

The drift alarm counts units, so an update that corrects what it found must count them too. Sums of a pane are by prediction.
Where each prediction is a unit of weight one, they are by unit as well. Otherwise the rows of the stored sample are
filled again, each with its share of its unit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibrant.core.arrays import Floats
from calibrant.core.errors import CalibrationInputError
from calibrant.core.label_policies import POLICIES
from calibrant.core.pane import Pane

BY_UNIT = "unit"


@dataclass(frozen=True)
class UnitWeighted:
    """A pane whose units have weight one.

    Attributes
    ----------
    pane : Pane
    n_rows : labelled predictions of the stored sample that it was filled from; None if it has all of the window
    """

    pane: Pane
    n_rows: int | None = None


def unit_weighted(pane: Pane, raters: str) -> UnitWeighted:
    """Return the pane with a weight of one per unit, shared by the unit's predictions, or under `pooled` by its ratings.

    Parameters
    ----------
    pane : Pane with the accumulators "counts" and "sample"
    raters : label policy of the fit

    Raises
    ------
    CalibrationInputError
        Predictions share units or have weights, and no row of them is stored.

    Examples
    --------
    >>> from calibrant import Pane
    >>> pane = Pane.fill([0.9, 0.8, 0.2], [1, 0, 0], units=["ann", "ann", "bob"])
    >>> unit_weighted(pane, "mean").pane.weight
    2.0
    """
    if _is_by_unit(pane, raters):
        return UnitWeighted(pane)
    if not pane.keeps("sample") or not pane.sample.n:
        detail = (
            "Received weights=unit; predictions share units or have weights, and no row of this window is stored. "
            "Use weights=prediction."
        )
        raise CalibrationInputError.at("/weights", "unit_weights_not_kept", detail)
    batch, n_rows = pane.sample.batch(), pane.sample.n
    ratings = batch.row_total.astype(np.float64) if raters == POLICIES[0] else np.ones(batch.n)
    weighted = Pane(pane.spec)
    weighted.fill_batch(replace(batch, weights=_shares(pane, ratings)))
    return UnitWeighted(weighted, None if n_rows == pane.counts["n_labelled"] else n_rows)


def _is_by_unit(pane: Pane, raters: str) -> bool:
    """Return whether each contribution is a unit of weight one, where the pane stores it."""
    counts = pane.counts
    contributions = counts["n_ratings"] if raters == POLICIES[0] else counts["n_labelled"]
    if counts["n_units"] != contributions or pane.weight != counts["n_labelled"]:
        return False
    if not pane.keeps("sample"):
        return True
    rows = pane.sample.arrays()
    named = rows["units"] != rows["ids"]
    repeated = len(np.unique(rows["units"][named])) < int(rows["counts"][named].sum())
    return not repeated and bool((rows["weights"] == 1.0).all())


def _shares(pane: Pane, ratings: Floats) -> Floats:
    """Return the weight of each row of the sample: its share of its unit per contribution, times its occurrences.

    A row without a named unit is a unit each time it occurs.
    """
    rows = pane.sample.arrays()
    occurrences = rows["counts"].astype(np.float64)
    index = np.unique(rows["units"], return_inverse=True)[1]
    of_unit = np.bincount(index, occurrences * ratings)[index]
    own = rows["units"] == rows["ids"]
    return np.asarray(occurrences / np.where(own, ratings, of_unit))
