"""Predictions against the distribution of their ratings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery, default_bins
from calibrant.core.view import View
from calibrant.metrics import accumulators_for, compute_metrics

SLUGS = ("ent_ce", "dist_ce", "rank_cs")


def parts(params: dict[str, Any]) -> Iterable[str]:
    """What the three metrics read."""
    return accumulators_for(SLUGS)


def answer(pane: Pane, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """EntCE, DistCE and RankCS with their quantiles and histograms."""
    view = View(pane, question_of_measures(pane, params))
    about = {
        "n": view.counts["n_labelled"],
        "n_ratings": view.counts["n_ratings"],
        "ci": view.question.ci,
    }
    return about | compute_metrics(view, SLUGS, seed)


def question_of_measures(pane: Pane, params: dict[str, Any]) -> PaneQuery:
    """What the view is asked; the measures have no bins, but every question has some, which the grid must give."""
    return PaneQuery(bins=default_bins(pane.spec), ci=params.get("ci", 0.95))
