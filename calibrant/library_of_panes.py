"""Results of a pane: metrics, reliability table and temperature from its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibrant.calibrators.temperature.fit import fit_temperature as fit_profile
from calibrant.core.documents import Extra
from calibrant.core.pane import Pane
from calibrant.core.query import Bins, PaneQuery, default_bins
from calibrant.core.view import View
from calibrant.inference.detectable import detectable
from calibrant.inference.reliability_table import reliability as reliability_of
from calibrant.library_arguments import (
    accepted_options,
    reject_edges,
    reject_unused_edges,
    slugs_of,
)
from calibrant.library_estimates import estimates_of
from calibrant.metrics.estimate import Estimate
from calibrant.results import ReliabilityTable, Report, Temperature
from calibrant.results.expected_accuracy import expected_of_panes


def evaluate_pane(
    pane: Pane,
    metrics: str | Sequence[str] | None,
    *,
    bins: Bins | None,
    scope: str | None,
    **requested: Any,
) -> Report:
    """Compute metrics from a pane; see `Pane.evaluate`."""
    return report_of(*view_of(pane, metrics, bins=bins, scope=scope, **requested))


def view_of(
    pane: Pane,
    metrics: str | Sequence[str] | None,
    *,
    bins: Bins | None,
    scope: str | None,
    **requested: Any,
) -> tuple[View, list[str]]:
    """Return the view of a pane under the options of a call, and the requested metrics by their canonical keys."""
    slugs = slugs_of(metrics, requested.keys() - {"binning", "edges", "min_count", "raters", "ci"})
    shared = {
        name: requested.pop(name) for name in ("binning", "edges", "min_count", "raters", "ci")
    }
    pane_query = PaneQuery(
        bins=_bins(pane, bins, scope),
        scope=scope,
        options=accepted_options(requested, slugs),
        **shared,
    )
    reject_unused_edges(pane_query, slugs)
    return View(pane, pane_query), slugs


def reliability_of_pane(
    pane: Pane, *, bins: Bins | None, scope: str | None, **requested: Any
) -> ReliabilityTable:
    """Compute the reliability table of a pane; see `Pane.reliability`."""
    return ReliabilityTable.from_dict(
        reliability_of(
            View(pane, PaneQuery(bins=_bins(pane, bins, scope), scope=scope, **requested))
        )
    )


def temperature_of_pane(pane: Pane, **requested: Any) -> Temperature:
    """Fit the temperature of a pane; see `Pane.temperature`."""
    reject_edges(requested["bins"])
    names = ("bins", "min_count", "ci")
    numbers = PaneQuery(**{name: requested[name] for name in names}).numbers()
    return Temperature.from_dict(fit_profile(pane, rows_if_complete=True, **requested | numbers))


def expected_accuracy_of_pane(pane: Pane, ci: float) -> Estimate:
    """Estimate the accuracy of unlabelled predictions; see `Pane.expected_accuracy`."""
    found = expected_of_panes([pane], [pane], ci)
    if found is None:
        return Estimate(None, "too_few_units", name="expected_accuracy")
    about = {"n_unlabelled": found.n_unlabelled, "n_labelled": found.n_labelled}
    return Estimate(found.value, interval=found.interval, name="expected_accuracy", extra=about)


def _bins(pane: Pane, bins: Bins | None, scope: str | None) -> Bins:
    return default_bins(pane.spec, scope) if bins is None else bins


def report_of(view: View, slugs: Sequence[str]) -> Report:
    """Return the report of metrics by their canonical keys."""
    split = view.pane.units_split
    about: Extra = {
        **view.counts,
        "weight": view.pane.weight,
        "unit_source": view.pane.unit_source,
        "n_units_split": split["n"],
        "raters": view.pane_query.raters,
        "scope": view.scope,
        **view.pane_query.about_bins,
        "ci": view.pane_query.ci,
    }
    if view.notes.per_rating == 1:
        about["detectable"] = detectable(view)
    if split["estimated"]:
        about["n_units_split_estimated"] = True
    return Report(estimates_of(view, slugs), view.notes.added_to(about))
