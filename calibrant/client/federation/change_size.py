"""By how many units two totals differ, at least.

A receiver of two totals can subtract them. If a single unit has changed, the difference is this unit. The unit sums of a pane give each
unit of a batch weight one over 60 bins of the score. So a unit can raise the sum of all bins that have risen by at most one, for
each batch in which it is; the same for those that have fallen. The sum of what has risen, divided by the largest number of
batches of a unit, is therefore a lower bound of the units that have changed. Changes that cancel are not seen: the bound is then too low,
and the total waits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.unit_sample import UnitSample
from calibrant.accumulators.units import SUMS
from calibrant.core.pane import Pane

# Of all predictions; and of those with a label.
EVERY = ("occupancy",)
LABELLED = ("weight", "correct_mean", "correct_majority", "correct_single", "correct_pooled")
NEGLIGIBLE = 1e-6  # rounding of sums
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Profile:
    """Unit sums of a total.

    Attributes
    ----------
    sums : float64 (6, 60): those of `EVERY`, then those of `LABELLED`
    n_batches : largest number of batches that a unit is in
    """

    sums: Floats
    n_batches: int

    @classmethod
    def of(cls, total: Pane) -> Profile:
        """Return the profile of a total."""
        block = total["units"].blocks["bins"]
        rows = [SUMS.index(name) for name in (*EVERY, *LABELLED)]
        dense = np.zeros((len(SUMS), block.size))
        places, _, sums = block.filled()
        dense[:, places] = sums
        return cls(dense[rows], max([1, *_units(total).batches.tolist()]))

    def pack(self) -> bytes:
        """Return the profile as bytes."""
        return self.n_batches.to_bytes(8, "little") + self.sums.astype("<f8").tobytes()

    @classmethod
    def unpack(cls, data: bytes) -> Profile:
        """Return the profile that `pack` wrote."""
        sums = np.frombuffer(data[8:], "<f8").reshape(len(EVERY) + len(LABELLED), -1)
        return cls(sums, int.from_bytes(data[:8], "little"))


def size_of(total: Pane) -> int:
    """Return the number of labelled units of a total; a unit that was named counts once, however many batches it is in."""
    units = _units(total)
    if units.is_empty:
        return total.counts["n_units"]
    return min(len(units.hashes) << units.halvings, total.counts["n_units"])


def differs_enough(new: Profile, old: Profile, minimum: int) -> bool:
    """Return whether at least `minimum` units differ.

    Labelled units and all predictions are judged separately: one of them may be unchanged, but not changed by fewer. A change that the
    profiles do not show, such as another wrong class as label, is not enough.
    """
    change = (new.sums - old.sums) / max(new.n_batches, old.n_batches)
    change[np.abs(change) < NEGLIGIBLE] = 0.0
    first = len(EVERY)
    changed = [n for n in map(_units_changed, (change[:first], change[first:])) if n]
    return bool(changed) and min(changed) >= minimum - NEGLIGIBLE


def _units_changed(change: Floats) -> float:
    risen, fallen = np.maximum(change, 0.0).sum(axis=1), np.maximum(-change, 0.0).sum(axis=1)
    return float(max(risen.max(), fallen.max()))


def _units(total: Pane) -> UnitSample:
    found = total["unit_sample"]
    assert isinstance(found, UnitSample)
    return found
