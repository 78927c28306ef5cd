"""Readers of a manifest compared, each with the others and the model with each, from rows of equal voxels of the regions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from calibrant.cli.evaluation import EvaluationSettings
from calibrant.cli.imaging.reduction import WeightedRows
from calibrant.cli.imaging.voxel_pane import VoxelPane
from calibrant.core.arrays import Floats, Ints
from calibrant.core.documents import Result, Row
from calibrant.raters.agreement import agreements
from calibrant.raters.odd_rater import odd_rater

# Their ratings of a voxel are one number to the base 3, which must fit into the key of a row.
MAX_COMPARED = 18


@dataclass(frozen=True)
class _Ratings:
    """Voxels of one case with equal ratings: each reader's class, -1 without, and the number of voxels."""

    patient: str
    given: dict[str, Ints]
    weight: Floats


@dataclass
class Readers:
    """What readers gave the voxels of the regions.

    Attributes
    ----------
    panes : by reader, of the model against the ratings of this reader
    n_left_out : cases with too many readers
    """

    panes: dict[str, VoxelPane] = field(default_factory=dict)
    n_left_out: int = 0
    _cases: list[_Ratings] = field(default_factory=list)

    def add(self, patient: str, names: Sequence[str], rows: WeightedRows) -> None:
        """Add the rows of a case, whose `positives` are patterns of the ratings of these readers."""
        patterns, place = np.unique(rows.positives, return_inverse=True)
        weight = np.bincount(place, rows.weight, len(patterns)).astype(np.float64)
        given = {name: rating_in(patterns, i) for i, name in enumerate(names)}
        self._cases.append(_Ratings(patient, given, weight))

    def compared(self, settings: EvaluationSettings) -> tuple[list[Result], Row | None]:
        """Return each reader, as `ReportContents` has them, and the odd one; none without several, or if a case has too many."""
        names = sorted(self.panes, key=lambda name: (len(name), name))
        if len(names) < 2 or self.n_left_out:
            return [], None
        raters = {name: self._classes(name) for name in names}
        weight = np.concatenate([each.weight for each in self._cases])
        case = np.repeat(np.arange(len(self._cases)), [len(each.weight) for each in self._cases])
        patients = [each.patient for each in self._cases]
        unit = np.unique(patients, return_inverse=True)[1].astype(np.int64)[case]
        agreed = agreements(raters, _counts(raters), case, weight)
        found = [self._reader(name, settings) | agreed[name] for name in names]
        return found, odd_rater(raters, 2, unit, weight)

    def _classes(self, name: str) -> Ints:
        absent = [each.given.get(name) for each in self._cases]
        return np.concatenate(
            [
                np.full(len(own.weight), -1, np.int64) if given is None else given
                for own, given in zip(self._cases, absent, strict=True)
            ]
        )

    def _reader(self, name: str, settings: EvaluationSettings) -> Result:
        pane = self.panes[name]
        metrics = pane.evaluate(["ece", "dice"], settings)["metrics"]
        return {"name": name, "n_ratings": pane.n_ratings, "metrics": metrics}


def rating_in(patterns: NDArray[np.int64], place: int) -> Ints:
    """Return a reader's class in patterns, -1 without a label.

    >>> rating_in(np.array([5, 7]), 0).tolist(), rating_in(np.array([5, 7]), 1).tolist()
    ([1, 0], [0, 1])
    """
    return np.asarray(patterns // 3**place % 3 - 1, np.int64)


def rows_of_reader(rows: WeightedRows, place: int) -> WeightedRows:
    """Return the rows that one reader rated, with this reader's rating alone."""
    given = rating_in(rows.positives, place)
    own = np.flatnonzero(given >= 0)
    return WeightedRows(
        rows.probability[own], given[own], np.ones(len(own), np.int64), rows.weight[own]
    )


def _counts(raters: dict[str, Ints]) -> Ints:
    """Return the ratings by class, (n, 2)."""
    given = np.stack(list(raters.values()), axis=1)
    return np.stack([(given == k).sum(axis=1) for k in (0, 1)], axis=1).astype(np.int64)
