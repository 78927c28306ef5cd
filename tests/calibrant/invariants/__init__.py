"""Invariants that connect the accumulators of one pane, as each is filled from the same predictions.

Cells of each table hold as many predictions as `counts` says, losses at temperature 1 are the scores, and parts of the data add
up to the whole. Counts are compared exactly, sums within `basis.TOLERANCE` of the weight that they are sums of.
"""

from __future__ import annotations

import numpy as np

from calibrant.core.pane import Pane
from tests.calibrant.invariants import ratings, sums, tables
from tests.calibrant.invariants.basis import Invariants


def invariants_of(pane: Pane) -> Invariants:
    """Each invariant as a sentence and whether it holds, everywhere where it is an array."""
    for name in pane.names:
        for module in (tables, ratings, sums):
            found = getattr(module, f"of_{name}", None)
            if found is not None:
                yield from found(pane)


def broken(pane: Pane) -> list[str]:
    """Sentences of the invariants that the pane breaks."""
    return [sentence for sentence, holds in invariants_of(pane) if not np.all(holds)]
