"""Panes filled by numpy: the specification of the compiled fill."""

from __future__ import annotations

from calibrant import Batch, Pane, PaneSpec
from calibrant.accumulators import accumulators
from calibrant.accumulators.base import fill_all
from tests.oracle.content_digest import rows_digest


def fill(pane: Pane, batch: Batch) -> Pane:
    """Add a batch to a pane of all accumulators; returns it."""
    with_cases = pane.keeps("cases")
    pane._add_digest(rows_digest(batch, with_cases=with_cases))
    fill_all([pane[name] for name in pane.names if accumulators()[name].concerns(batch)], batch)
    return pane


def filled(spec: PaneSpec, *batches: Batch) -> Pane:
    """Return a pane with some batches."""
    pane = Pane(spec)
    for batch in batches:
        fill(pane, batch)
    return pane
