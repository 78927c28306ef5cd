"""Panes filled by numpy: the specification of the compiled fill."""

from __future__ import annotations

from calibrant import Batch, Pane, PaneSpec
from calibrant.accumulators import accumulators
from calibrant.accumulators.accumulator import Accumulator
from calibrant.core.batch_sums import BatchSums
from tests.oracle.batch_sums import FillSums
from tests.oracle.content_digest import rows_digest
from tests.oracle.fills import FILLED


def fill_part(part: Accumulator, batch_sums: BatchSums) -> None:
    """Add a batch to an accumulator of any name."""
    if part.name in FILLED:
        if not isinstance(batch_sums, FillSums):
            batch_sums = FillSums(batch_sums.complete_batch)
        twin = FILLED[part.name](part.spec)
        twin.blocks = part.blocks
        part = twin
    part.fill(batch_sums)


def fill(pane: Pane, batch: Batch) -> Pane:
    """Add a batch to a pane of all accumulators; returns it."""
    pane._add_digest(rows_digest(batch, with_cases=pane.keeps("cases")))
    batch_sums = FillSums(batch)
    for name in pane.names:
        if accumulators()[name].concerns(batch):
            fill_part(pane[name], batch_sums)
    return pane


def filled(spec: PaneSpec, *batches: Batch) -> Pane:
    """Return a pane with some batches."""
    pane = Pane(spec)
    for batch in batches:
        fill(pane, batch)
    return pane
