"""Held-out gain of a calibration map over another map, of a baseline window or model: how much lower its mean losses are.

The window's stored sample is split in two by unit. The method is fitted to each half and applied to the other, so that
the own map is not evaluated on its own training labels. The other map is applied unchanged. Both are scored on the
window's labels.
"""

from __future__ import annotations

from calibrant.calibrators.base import Options
from calibrant.calibrators.fitting import apply
from calibrant.calibrators.map_comparison import losses_under, means_of
from calibrant.calibrators.procedure_gain import losses_across
from calibrant.calibrators.rows import MIN_UNITS, about_sample, gain_by_unit, labelled_rows
from calibrant.core.documents import FittedMap, Result, Row
from calibrant.core.view import NoResultError, View


def gain_over_other_map(other: FittedMap, view: View, method: str, options: Options) -> Result:
    """Return the other map's mean losses minus those of the own method's map, held out, each with its interval.

    Parameters
    ----------
    other : a fitted map as `apply` takes it
    view : of the window; its query gives scope, label policy and level
    method, options : of the own map

    Returns
    -------
    dict with `difference` (`nll` and `brier`: value and interval, positive if the own map is better; None with a
    `difference_reason`), `held_out` and `against_held_out` (mean losses of both), `n` and `n_units`
    """
    reported: Row = {
        "difference": None, "difference_reason": None, "held_out": None, "against_held_out": None, "n": 0, "n_units": 0,
    }  # fmt: skip
    if about_sample(view.pane) is None:
        return reported | {"difference_reason": "not_kept"}
    if other.get("parameters") is None:
        return reported | {"difference_reason": "no_map"}
    batch = view.pane.sample.batch()
    rows = labelled_rows(batch, view.policy)
    reported |= {"n": len(rows), "n_units": rows.n_units}
    if rows.n_units < MIN_UNITS:
        return reported | {"difference_reason": "few_units"}
    try:
        scope, own = losses_across(rows.half, other, method, options, view, batch, rows)
    except NoResultError as error:
        return reported | {"difference_reason": error.reason}
    theirs = losses_under(rows, scope, apply(other, batch))
    difference = gain_by_unit(rows, theirs, own, view.pane_query.ci)
    means = {"held_out": means_of(rows, own), "against_held_out": means_of(rows, theirs)}
    return reported | means | {"difference": difference}
