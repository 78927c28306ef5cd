"""Arguments of the public functions: rows as a batch, metrics and their options, and panes that hold what they read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from calibrant.core.batch import Batch
from calibrant.core.batch_sums import RawRows
from calibrant.core.errors import CalibrationInputError
from calibrant.core.own_edges import are_edges
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.routing import split_batch
from calibrant.core.spec import MAX_CLASSES, PaneSpec
from calibrant.core.view import View
from calibrant.input.arrays import read_arrays
from calibrant.input.label_shares import POLICIES, reject_policy, reject_without_number
from calibrant.input.rating_columns import LABELS
from calibrant.input.single_labels import OTHER_DATA, single_labels
from calibrant.kernel.single_labels import fills, pane_of
from calibrant.metrics import (
    DEFAULT_METRICS,
    Metric,
    accumulators_for,
    chosen,
    requested,
)
from calibrant.metrics.requests import BIN_EDGES, takes

# Arguments of one type each, and the type in words.
_TYPES: tuple[tuple[tuple[str, ...], type, str], ...] = (
    (("binning", "edges", "raters", "scope", "objective", "method", "ties"), str, "text"),
    (("normalize", "centred", "shrunk"), bool, "True or False"),
)
# The data of a call, in the order of its parameters; the first two may be given by position.
DATA = ("probabilities", "labels", *OTHER_DATA, "normalize")
# The fields of a query that a call gives.
QUERY = ("bins", "binning", "edges", "raters", "min_count", "scope", "ci")


def slugs_of(metrics: str | Iterable[str] | None, shared: Collection[str]) -> list[str]:
    """Return the requested metrics by their canonical keys, where options of these names are given to all metrics."""
    if metrics is None:
        return list(DEFAULT_METRICS)
    is_single = isinstance(metrics, np.ndarray) and metrics.ndim != 1
    if is_single or not isinstance(metrics, Iterable):
        detail = f"Received {type(metrics).__name__} as metrics; expected slugs, such as 'ece,brier' or ['ece', 'brier']."
        raise CalibrationInputError.at("/metrics", "metric_form", detail)
    return [each.key for each in requested(metrics, shared=shared)]


def accepted_options(options: dict[str, Any], slugs: Iterable[str]) -> dict[str, Any]:
    """Return the options, once a requested metric takes each.

    Raises
    ------
    CalibrationInputError
        No requested metric takes an option.
    """
    taken = {name for metric in chosen(slugs) for name in _own(metric)}
    for name in options:
        if name not in taken:
            listed = ", ".join(sorted(taken)) or "none"
            detail = f"Received option {name!r}; the requested metrics take {listed}."
            raise CalibrationInputError.at(f"/{name}", "unknown_option", detail)
    return {name: value for name, value in options.items() if value is not None}


def reject_unused_edges(pane_query: PaneQuery, slugs: Iterable[str]) -> None:
    """Reject edges where every requested metric that has bins has those of equal mass, and own edges that no metric takes.

    Raises
    ------
    CalibrationInputError
        As described.
    """
    slugs = list(slugs)
    if pane_query.bin_edges and not any(takes(each, BIN_EDGES) for each in chosen(slugs)):
        listed = ", ".join(slugs)
        detail = f"Received own edges as bins, which {listed} does not take. Give a number of bins, or choose a metric such as ece."
        raise CalibrationInputError.at("/bins", "not_taken", detail)
    binnings = {
        each.binning(pane_query.binning) for each in requested(slugs) if takes(each.metric, "edges")
    }
    if pane_query.edges != PaneQuery.edges and binnings == {"equal_mass"}:
        detail = f"Received edges={pane_query.edges!r} with bins of equal mass, which have none. Remove edges."
        raise CalibrationInputError.at("/edges", "not_taken", detail)


def _own(metric: Metric) -> list[str]:
    """Return the names of a metric's own options."""
    return [
        *(option.name for option in metric.own_options),
        *({"composites"} & set(metric.options)),
    ]


def check_types(arguments: Mapping[str, Any]) -> None:
    """Check that choices are texts and switches are truth values; an array in their place would be compared by element.

    Raises
    ------
    CalibrationInputError
        Another type.
    """
    for names, kind, expected in _TYPES:
        for name in names:
            value = arguments.get(name)
            if value is not None and not isinstance(value, kind):
                detail = (
                    f"Received {name}={value!r:.60} ({type(value).__name__}); expected {expected}."
                )
                raise CalibrationInputError.at(f"/{name}", "type", detail)


def labelled_batch(arguments: dict[str, Any], *, counted: bool = False) -> Batch:
    """Return the labelled data of a call; `counted`: shares of labels only with their number of ratings."""
    check_types(arguments)
    data = {name: arguments.get(name) for name in DATA if name != "normalize"}
    if all(data[name] is None for name in LABELS):
        detail = f"Received none of {', '.join(LABELS)}; expected one of them."
        raise CalibrationInputError.at("/labels", "missing", detail)
    batch = read_arrays(**data, normalize=bool(arguments.get("normalize")))
    if batch.notes.has_shares:
        reject_policy(arguments.get("raters") or POLICIES[0])
        reject_without_number(batch.notes.per_rating if counted else 1)
    return batch


def filled(batch: Batch, accumulators: Iterable[str]) -> Pane:
    """Return a pane with the accumulators that a computation reads."""
    pane = Pane(PaneSpec(batch.task, batch.n_classes), {*accumulators, "unit_sample"})
    for part in split_batch(batch):
        pane.fill_batch(part)
    return pane


def filled_view(arguments: dict[str, Any], pane_query: PaneQuery, slugs: Sequence[str]) -> View:
    """Return a view of the data of a call, with a pane of what these metrics read and the cells of the query's own scope."""
    return _view_of_arrays(arguments, pane_query, slugs) or view_of_rows(
        labelled_batch(arguments), pane_query, slugs
    )


def view_of_rows(batch: Batch, pane_query: PaneQuery, slugs: Sequence[str]) -> View:
    """Return a view of rows, with a pane of what these metrics read and the cells of the query's own scope."""
    spec = PaneSpec(batch.task, batch.n_classes)
    only = accumulators_for(["ece", *slugs], pane_query.scope_for(spec), spec.default_scope)
    return View(filled(batch, only), pane_query, batch)


def _view_of_arrays(
    arguments: dict[str, Any], pane_query: PaneQuery, slugs: Sequence[str]
) -> View | None:
    """Return a view of arrays that are read where they are; None of other data, or for metrics that read more."""
    rows = single_labels(arguments)
    if rows is None or rows.n_classes > MAX_CLASSES:
        return None
    spec = PaneSpec("binary" if rows.is_flat else "multiclass", rows.n_classes)
    only = accumulators_for(["ece", *slugs], pane_query.scope_for(spec), spec.default_scope)
    pane = pane_of(rows, {*only, "unit_sample"}) if fills(spec, only) else None
    if pane is None:
        return None
    return View(pane, pane_query, RawRows(lambda: labelled_batch(arguments)))


def reject_edges(bins: Any) -> None:
    """Reject own edges where only a number of bins is taken.

    Raises
    ------
    CalibrationInputError
        As described.
    """
    if are_edges(bins):
        detail = f"Received bins={bins!s:.60} ({type(bins).__name__}); expected the number of bins, an integer."
        raise CalibrationInputError.at("/bins", "type", detail)
