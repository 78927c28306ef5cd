"""Values of peer libraries compared with ours, with one sentence on why they differ."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from calibrant.core.batch import Batch
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.view import NoResultError, View
from calibrant.metrics import compute_metrics
from calibrant.peers import PEERS, REASONS
from calibrant.peers.peer import Floats, Ints, PeerValue, ScoredRows

# Our metrics that peers have a version of.
METRICS = (
    *("ace", "adaptive_ece", "brier", "classwise_ece", "debiased_ece"),
    *("ece", "mce", "nll", "rmsce", "smooth_ece"),
)


def compared(view: View, peer: str | None = None) -> Result:
    """Return the values of a peer, or of all, as JSON-able objects.

    Parameters
    ----------
    view : with raw rows
    peer : of `PEERS`, or "all". Default: all.

    Returns
    -------
    dict by peer: `version`, and `values` by the peer's function: `value` or None with a `reason`, `metric` and `ours`, our
    metric of the same idea and its value, and `why` they differ

    Raises
    ------
    CalibrationInputError
        An unknown peer, or a scope that peers do not have.
    NoResultError
        Rows that peers do not take: with several ratings or with weights.
    """
    is_all = peer is None or (isinstance(peer, str) and peer == "all")
    names = list(PEERS) if is_all else [_known(peer)]
    rows = scored_rows(view)
    found = {name: PEERS[name].compute(rows, view.pane_query.bins) for name in names}
    metrics = {each.metric for values in found.values() for each in values.values()}
    ours = _ours(view, metrics)
    return {
        name: {
            "version": PEERS[name].version,
            "values": {key: _described(each, ours[each.metric]) for key, each in values.items()},
        }
        for name, values in found.items()
    }


def _known(name: Any) -> str:
    if not isinstance(name, str) or name not in PEERS:
        detail = f"Received {name!r:.60}; expected one of {', '.join(PEERS)}, or all."
        raise CalibrationInputError.at("/compat", "one_of", detail)
    return name


def _ours(view: View, slugs: Collection[str]) -> dict[str, float | None]:
    found = compute_metrics(view, sorted(slugs))
    return {slug: found[slug]["value"] for slug in slugs}


def _described(each: PeerValue, ours: float | None) -> Result:
    reason = {"reason": each.reason, "detail": REASONS[each.reason]} if each.reason else {}
    return {"value": each.value, **reason, "metric": each.metric, "ours": ours, "why": each.why}


def scored_rows(view: View) -> ScoredRows:
    """Return the labelled rows with one label each, scored as the view's scope.

    Raises
    ------
    CalibrationInputError
        The scope `all`.
    NoResultError
        As `compared`.
    """
    assert view.batch_sums is not None
    if view.scope == "all":
        detail = "Received scope all; expected top_label, positive or class:INDEX. Peers score one probability per row."
        raise CalibrationInputError.at("/scope", "one_of", detail)
    batch = view.batch_sums.complete_batch
    labels = _labels(batch, view.pane_query.raters)
    rated = labels >= 0
    if not rated.any():
        raise NoResultError("no_labels", "no row has a label")
    if batch.weights is not None and np.any(batch.weights[rated] != 1.0):
        raise NoResultError(
            "weights", "peers take no weights; send the rows without, or use our metrics"
        )
    return _scored(batch.probabilities[rated], labels[rated], view.scope)


def _labels(batch: Batch, raters: str) -> Ints:
    """Return one class per row, -1 without a label."""
    if raters == "single":
        return batch.chosen_rating
    if raters != "majority" and (batch.row_total > 1).any():
        detail = "peers take one label per row, and rows have several ratings; set raters to majority or single"
        raise NoResultError("several_ratings", detail)
    return batch.majority[0]


def _scored(probabilities: Floats, labels: Ints, scope: str) -> ScoredRows:
    top = probabilities.argmax(axis=1)
    scored = top
    if scope != "top_label":
        index = 1 if scope == "positive" else int(scope.partition(":")[2])
        scored = np.full_like(top, index)
    score = probabilities[np.arange(len(top)), scored]
    outcome = (labels == scored).astype(np.float64)
    return ScoredRows(probabilities, labels, score, outcome, scope != "top_label")
