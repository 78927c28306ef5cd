"""Report of one batch from its raw rows, as `POST /v1/score` returns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibrators.temperature.fit import fit_temperature_exact
from calibrant.core.batch import Batch
from calibrant.core.documents import Result
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.routing import split_batch
from calibrant.core.spec import PaneSpec
from calibrant.core.view import View
from calibrant.inference.reliability_table import reliability
from calibrant.input.label_shares import POLICIES, reject_policy, reject_without_number
from calibrant.library_arguments import filled
from calibrant.metrics import (
    DEFAULT_METRICS,
    accumulators_for,
    compute_metrics,
    is_of_shares,
    requested,
    view_for,
)
from calibrant.raters.label_statistics import disagreement
from calibrant.report_sections import PARAMETERS, RATERS, requested_sections
from calibrant.segmentation.case_options import MEMBERSHIP
from calibrant.stability.rater_baselines import of_raters, values_by_policy

_PANE_QUERY = ("bins", "bin_edges", "binning", "edges", "raters", "min_count", "scope", "ci")
_ELSEWHERE = ("metrics", "objective", "slice", *PARAMETERS)


def score_batch(
    batch: Batch, params: Mapping[str, Any], raters: Mapping[str, NDArray[np.int64]] | None = None
) -> Result:
    """Metrics, reliability table and temperature of a batch.

    Parameters
    ----------
    batch : with at least one labelled prediction
    params : `metrics` (slugs), `objective` of the temperature, the fields of `PaneQuery`, `include` (names of
        `report_sections.SECTIONS`) with the sections' own parameters, and further options by name
    raters : each named rater's class for every row of the batch, -1 where they gave none

    Returns
    -------
    dict of JSON-able values

    Raises
    ------
    CalibrationInputError
        An option outside its range, or an unknown metric.
    """
    pane_query = pane_query_of(params)
    slugs = params.get("metrics") or DEFAULT_METRICS
    view = View(_pane_of(batch, slugs, params), pane_query, batch)
    pane = view.pane
    temperature = fit_temperature_exact(
        batch,
        objective=params.get("objective", "nll"),
        raters=pane_query.raters,
        ci=pane_query.ci,
        bins=PaneQuery.bins if pane_query.bin_edges else pane_query.bins,
        min_count=pane_query.min_count,
    )
    compared = {} if raters is None else {"baselines": raters_compared(view, slugs, raters)}
    return {
        **compared,
        **batch.notes.to_dict(),
        **view.counts,
        "weight": pane.weight,
        "unit_source": batch.unit_source,
        "raters": pane_query.raters,
        "scope": view.scope,
        "metrics": compute_metrics(view, slugs),
        "reliability": reliability(view),
        "temperature": temperature,
        **requested_sections(view, params.get("include") or (), {**params, RATERS: raters}),
    }


def _pane_of(batch: Batch, slugs: Sequence[str], params: Mapping[str, Any]) -> Pane:
    """Return a pane of the rows; of shares of labels alone it has the sums over ratings that metrics read."""
    if batch.notes.has_shares:
        reject_policy(params.get("raters") or POLICIES[0])
    if batch.notes.per_rating == 1:
        pane = Pane(PaneSpec(batch.task, batch.n_classes))
        for part in split_batch(batch):
            pane.fill_batch(part)
        return pane
    if params.get("include") or params.get("instances"):
        reject_without_number(batch.notes.per_rating)
    return filled(batch, accumulators_for(["ece", *(each for each in slugs if is_of_shares(each))]))


def raters_compared(
    view: View, slugs: Sequence[str], raters: Mapping[str, NDArray[np.int64]]
) -> Result:
    """Each metric under every label policy and of each named rater separately, with the rate at which raters differ."""
    assert view.batch_sums is not None
    batch, pane_query = view.batch_sums.complete_batch, view.pane_query
    differ = disagreement(batch.label_counts[batch.row_total > 1])
    found = {
        each.key: {
            "policies": values_by_policy(view_for(view, each), each.metric.slug),
            **of_raters(batch, each.metric.slug, each.pane_query(pane_query), raters),
        }
        for each in requested(slugs, shared=pane_query.options)
    }
    return {
        "disagreement": float(differ.mean()) if len(differ) else None,
        "n_majority_ties": view.counts["n_majority_ties"],
        "metrics": found,
    }


def pane_query_of(params: Mapping[str, Any]) -> PaneQuery:
    """Return the query that parameters describe; parameters that are not its fields become its options.

    `binning` may name a membership of `ml1_*` instead of a binning: "hard", "soft", "spline" or "gaussian", in equal-width bins.
    """
    if params.get("binning") in MEMBERSHIP.allowed:
        params = {**params, "binning": "equal_width", "membership": params["binning"]}
    known = {name: params[name] for name in _PANE_QUERY if params.get(name) is not None}
    rest = {
        name: value for name, value in params.items() if name not in (*_PANE_QUERY, *_ELSEWHERE)
    }
    return PaneQuery(
        **known, options={name: value for name, value in rest.items() if value is not None}
    )
