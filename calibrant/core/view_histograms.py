"""Plain histograms of a pane, as a query sees them."""

from __future__ import annotations

from functools import cached_property
from itertools import product
from typing import Any

from calibrant.core.arrays import Floats
from calibrant.core.errors import NoResultError
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.spec import PaneSpec


class HistogramView:
    """Base of `View`: which plain histograms belong to the query's table, and whether they lack predictions of others."""

    pane: Pane
    pane_query: PaneQuery
    spec: PaneSpec
    scope: str

    @cached_property
    def counts(self) -> dict[str, int]:
        """Numbers of predictions, ratings and units of the pane."""
        return self.pane.counts

    @property
    def is_without_histograms(self) -> bool:
        """Whether the window contains no plain histograms."""
        return not self.pane.keeps("histograms") or self.pane["histograms"].is_empty

    def reject_histograms(self) -> None:
        """Raise if the window contains plain histograms, which have only binned tables."""
        if self.is_without_histograms:
            return
        weight = max(self.pane.histograms.weight(key) for key in self.pane.histograms.blocks)
        detail = "the window contains plain histograms, which supply equal-width bins of their own kind, policy and edges only"
        raise NoResultError("not_in_histogram", detail, weight)

    def histogram_keys(self, scope: str) -> tuple[str, ...]:
        """Return keys of the plain histograms for a scope under this query: for all labels, those of every class."""
        kind, _, name = scope.partition(":")
        end = f"{self.pane_query.raters}|{self.pane_query.edges}"
        if kind == "all":
            return tuple(f"class|{k}|{end}" for k in range(self.spec.n_classes))
        return (f"{kind}|{name}|{end}",)

    def _stored_keys(self, scope: str) -> tuple[str, ...]:
        """Return those keys if the window contains histograms of every one; else none."""
        if not self.pane.keeps("histograms"):
            return ()
        keys = self.histogram_keys(scope)
        return keys if all(key in self.pane.histograms.blocks for key in keys) else ()

    def histogram_counts(self, scope: str) -> dict[str, Any]:
        """Return numbers of predictions and ratings including the plain histograms in a scope's table; empty without.

        `n` is None if clients did not report the number of predictions of their ratings.
        """
        keys = self._stored_keys(scope)
        if not keys:
            return {}
        histograms = self.pane.histograms
        # Every class counts every rating once.
        weight, predictions = histograms.weight(keys[0]), histograms.n_predictions(keys[0])
        pooled = self.pane_query.raters == "pooled"
        return {
            "n": None if predictions is None else self.counts["n_labelled"] + predictions,
            "n_ratings": self.counts["n_ratings"] + round(weight)
            if pooled
            else self.counts["n_ratings"],
            "weight_in_histograms": weight,
        }

    def histogram_share(self) -> float:
        """Return the share of the table's weight from plain histograms."""
        weight = self.pane.histograms.weight(self.histogram_keys(self.scope)[0])
        rest = (
            self.counts["n_ratings"]
            if self.pane_query.raters == "pooled"
            else self.counts["n_labelled"]
        )
        return weight / (weight + rest) if weight else 0.0

    def posted_table(self, kind: str) -> Floats | None:
        """Return count and sums of a kind's plain histograms, (3, cells); None without plain histograms.

        Raises
        ------
        NoResultError
            Plain histograms contain predictions that those of the kind, under this policy and these edges, do not.
        """
        if not self.pane.keeps("histograms") or self.pane["histograms"].is_empty:
            return None
        self._check_histograms(kind)
        return self.pane.histograms.table(self.histogram_keys(kind)[0])

    def _check_histograms(self, scope: str) -> None:
        """Raise if some histograms of the window contain predictions that the query's key does not."""
        if self.is_without_histograms:
            return
        histograms = self.pane.histograms
        keys = self._stored_keys(scope)
        if not keys:
            self.reject_histograms()
        for key, other in product(keys, histograms.blocks):
            missing = histograms.uncovered(key, other)
            if missing:
                detail = f"histograms of {other.replace('|', ' ')} contain predictions that those of {key.replace('|', ' ')} do not"
                raise NoResultError("not_in_histogram", detail, missing)
