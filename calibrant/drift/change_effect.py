"""What changed, in words: of labels relative to the scores, and only what is beyond chance.

A rate that changes as the mean score does is no change of calibration. A shift does not move the slope of a recalibration with intercept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrant.calibrators.cell_fits import log_odds
from calibrant.core.number_texts import against_scores, percent_text, size_text
from calibrant.drift.calibration import BinnedError
from calibrant.drift.change import N_BANDS
from calibrant.drift.recommendation import NEAREST_TO_CERTAIN, recalibration
from calibrant.drift.unit_tables import UnitTable

SHOWN_POINTS = 0.01  # a smaller change of the rate is not the subject of a sentence
# standard errors of a change of the rate, of the slope where it is the clearest, and of one that is stated beside the level
BEYOND_CHANCE, BEYOND_BESIDE = 2.0, 3.0


@dataclass(frozen=True)
class ChangeEffect:
    """The size of a change."""

    sides: tuple[UnitTable, UnitTable]  # labelled units before and since the change
    rate: str  # name of the rate of the labels
    direction: str = "level"  # in which the change is clearest, of `DIRECTIONS`

    @property
    def text(self) -> str:
        """What changed; empty if nothing of it is beyond chance."""
        if not all(each.n_units for each in self.sides):
            return ""
        before, after = (each.correct.sum() / each.n_units for each in self.sides)
        earlier, now = ((s.correct - s.confidence).sum() / s.n_units for s in self.sides)
        slope, moved = self._slope(), abs(now - earlier)
        if moved < max(SHOWN_POINTS, BEYOND_CHANCE * self._chance()):
            return self._band() or slope
        # Otherwise the scores moved at least half as much.
        is_of_rate = abs(after - before - (now - earlier)) <= moved / 2.0
        if slope and self.direction == "slope" and not is_of_rate:
            return slope
        also = f"; also, {slope}" if slope else ""
        if not is_of_rate:
            return f"{self.rate} was {against_scores(earlier)} before, and is now {against_scores(now)}{also}"
        verb = "fell" if after < before else "rose"
        return f"{self.rate} {verb} from {percent_text(before)} to {percent_text(after)}{also}"

    def _chance(self) -> float:
        """Return the standard error of the change of the rate relative to the mean score."""
        noise = [BinnedError.of(each.columns[:4]).noise for each in self.sides]
        return float(np.sqrt(sum((each**2).sum() for each in noise)))

    def _slope(self) -> str:
        """Return how the slope changed; empty if by chance."""
        (before, early), (after, late) = (_slope_of(each) for each in self.sides)
        n = BEYOND_CHANCE if self.direction == "slope" else BEYOND_BESIDE
        if abs(after - before) <= n * (early + late) ** 0.5:
            return ""
        return f"scores became {'too extreme' if after < before else 'too cautious'}"

    def _band(self) -> str:
        """Return the change at the scores of the band in which it is clearest."""
        name, _, k = self.direction.partition(" ")
        if name != "band":
            return ""
        parts = [each.columns[:3].reshape(3, N_BANDS, -1)[:, int(k)].sum(axis=1) for each in self.sides]  # fmt: skip
        if not all(n for n, _, _ in parts):
            return ""
        earlier, now = (against_scores((y - p) / n) for n, p, y in parts)
        low, high = (size_text((int(k) + i) / N_BANDS) for i in (0, 1))
        return f"at scores from {low} to {high}, {self.rate} was {earlier} before, and is now {now}"


def _slope_of(side: UnitTable) -> tuple[float, float]:
    """Return the slope of a recalibration and its variance, with the intercept fitted; infinite if none can be fitted."""
    fit = recalibration(side)
    if fit is None:
        return 1.0, float("inf")
    rate, x = fit(side.mean_confidence), log_odds(side.mean_confidence, NEAREST_TO_CERTAIN)
    v = side.weight * rate * (1.0 - rate)
    return fit.slope, 1.0 / max(float(v @ (x - v @ x / v.sum()) ** 2), 1e-300)
