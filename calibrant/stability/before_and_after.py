"""Reliability before and after a map, on the same labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrant.calibrators.applying import apply
from calibrant.calibrators.labelled_rows import about_sample
from calibrant.calibrators.map_comparison import compare
from calibrant.core.arrays import Floats
from calibrant.core.batch import Batch, Ratings
from calibrant.core.documents import FittedMap, Result
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.spec import PaneSpec
from calibrant.core.view import View
from calibrant.inference.reliability_table import reliability
from calibrant.metrics import accumulators_for, compute_metrics

BINS = 10


def map_effect(fitted: FittedMap, pane: Pane, raters: str = "pooled", ci: float = 0.95) -> Result:
    """Return the reliability of a pane's stored sample before and after a map.

    Parameters
    ----------
    fitted : a fitted map as `apply` takes it
    pane : Pane of predictions to which the map was not fitted
    raters : label policy
    ci : nominal coverage of the intervals

    Returns
    -------
    dict with `n` labelled predictions, `sample` (None if panes store none), and `before` and `after`: each with `ece` and the
    reliability `table` of 10 bins of `scope`; None, with a `reason`, without labels or a sample. A map of one event, such as the top
    label, is measured on the probability of that event.
    """
    nothing = {"n": 0, "sample": about_sample(pane), "before": None, "after": None}
    if not pane.keeps("sample"):
        return nothing | {"reason": "not_kept"}
    batch: Batch = pane.sample.batch()
    batch = batch.take(np.flatnonzero(batch.row_total > 0))
    if not batch.n:
        return nothing | {"reason": "no_labels"}
    query = PaneQuery(bins=BINS, raters=raters, ci=ci)
    sides = dict(zip(("before", "after"), _sides(fitted, batch), strict=True))
    measured = {name: _measured(each, query, fitted) for name, each in sides.items()}
    return nothing | {"n": batch.n, "reason": None} | measured


def map_on_slice(
    current: FittedMap | None, candidate: FittedMap, pane: Pane, raters: str, ci: float
) -> Result:
    """Return whether a map makes the predictions of a slice worse than the current one does.

    Parameters
    ----------
    current : a fitted map as `apply` takes it; None for the probabilities as sent
    candidate : a fitted map
    pane : Pane of the slice's predictions
    ci : nominal coverage of the interval of the gain

    Returns
    -------
    dict with `is_worse` (the complete interval of the gain is below 0), `n_units`, and the calibration error `before` and `after`;
    None if it is not worse
    """
    found = compare(current, candidate, pane, raters, ci)
    gain = found["gain"] or {}
    interval = next((each["interval"] for each in gain.values() if each["interval"]), None)
    is_worse = found["reason"] != "few_units" and interval is not None and interval[1] < 0.0
    errors: Result = {"before": None, "after": None}
    if is_worse:
        after = map_effect(candidate, pane, raters)
        before = after if current is None else map_effect(current, pane, raters)
        errors = {"before": _error(before["before" if current is None else "after"]), "after": _error(after["after"])}  # fmt: skip
    return {"is_worse": is_worse, "n_units": found["n_units"], **errors}


def _error(side: Result | None) -> float | None:
    return None if side is None else side["ece"]["value"]


def _sides(fitted: FittedMap, batch: Batch) -> tuple[Batch, Batch]:
    """Return the rows before and after the map; those of a map of one event as rows of two classes."""
    mapped = apply(fitted, batch)
    if fitted["scope"] == "full":
        return batch, replace(batch, scores=mapped, is_logits=False, edge_rules=None)
    top = batch.probabilities.argmax(axis=1)
    event = {"top_label": top, "positive": np.ones_like(top)}.get(fitted["scope"])
    if event is None:
        event = np.full_like(top, fitted["class"])
    own = batch.probabilities[np.arange(batch.n), event]
    return _of_event(batch, event, own), _of_event(batch, event, mapped)


def _of_event(batch: Batch, event: np.ndarray, probability: Floats) -> Batch:
    """Return the rows with two classes: the rest, and each row's event with this probability."""
    positive = batch.label_counts[np.arange(batch.n), event]
    counts = np.stack([batch.row_total - positive, positive], axis=1)
    row, class_index = np.nonzero(counts)
    return replace(
        batch,
        task="binary",
        scores=np.stack([1.0 - probability, probability], axis=1),
        is_logits=False,
        ratings=Ratings(row, class_index, counts[row, class_index]),
        edge_rules=None,
    )


def _measured(batch: Batch, query: PaneQuery, fitted: FittedMap) -> Result:
    pane = Pane(PaneSpec(batch.task, batch.n_classes), accumulators_for(["ece"]))
    pane.fill_batch(batch)
    view = View(pane, query, batch)
    found = reliability(view)
    scope = found["scope"] if fitted["scope"] == "full" else _scope_of_event(fitted)
    return {
        "ece": compute_metrics(view, ["ece"])["ece"],
        "scope": scope,
        "table": found["table"],
    }


def _scope_of_event(fitted: FittedMap) -> str:
    """Return the scope of a map of one event: `top_label`, `positive` or `class:INDEX`."""
    return f"class:{fitted['class']}" if fitted["scope"] == "class" else fitted["scope"]
