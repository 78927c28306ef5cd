"""Curves of one batch of predictions: the decision curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibrant.core.query import PaneQuery
from calibrant.library_arguments import check_types, filled_view
from calibrant.results.decision_curve import DecisionCurve, decision_curve_of, thresholds_of
from calibrant.results.metric_requests import scopes_by_index


def decision_curve(
    probabilities: Any = None,
    labels: Any = None,
    *,
    thresholds: Sequence[float] | None = None,
    scope: str | None = None,
    raters: str = "pooled",
    ci: float = 0.95,
    logits: Any = None,
    label_counts: Any = None,
    label_shares: Any = None,
    n_ratings: Any = None,
    weights: Any = None,
    units: Any = None,
    ids: Any = None,
    cases: Any = None,
    classes: Sequence[Any] | None = None,
    ignore_label: Any = None,
    normalize: bool = False,
) -> DecisionCurve:
    """Compute the net benefit of acting on scores over thresholds, with that of acting on all; of acting on none it is 0.

    Parameters
    ----------
    thresholds : increasing, from 0.001 to 0.999, at most 199. Default: 0.01, 0.02, …, 0.99.
    scope : the probability on which one acts. Default: class 1 of two classes, else the top class.
    probabilities, labels, raters, ci, logits, label_counts, label_shares, n_ratings, weights, units, ids, cases, \
classes, ignore_label, normalize : as in `evaluate`

    Returns
    -------
    DecisionCurve, whose `plot` draws it; intervals are of each threshold alone

    Raises
    ------
    CalibrationInputError
        A value that is not allowed, with its argument, row and rule.

    Source
    ------
    Vickers, Elkin (Medical Decision Making 2006).

    Examples
    --------
    >>> curve = decision_curve([0.9, 0.8, 0.3, 0.1], [1, 1, 0, 0], thresholds=[0.2, 0.5])
    >>> curve.net_benefit, [round(each, 3) for each in curve.treat_all]
    ([0.4375, 0.5], [0.375, 0.0])
    """
    arguments = locals()
    check_types(arguments)
    found = thresholds_of(thresholds)
    scope, _ = scopes_by_index(scope, (), classes)
    pane_query = PaneQuery(raters=raters, scope=scope, ci=ci)
    view = filled_view(arguments, pane_query, ["net_benefit"])
    return decision_curve_of(view, found)
