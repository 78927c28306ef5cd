"""A pane of weighted rows whose results state numbers of voxels: rows of equal voxels are an implementation detail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibrant.cli.evaluation import EvaluationSettings
from calibrant.cli.imaging.reduction import WeightedRows
from calibrant.core.documents import Result, Row
from calibrant.core.pane import Pane
from calibrant.core.spec import PaneSpec

SPEC = PaneSpec("binary", 2)


@dataclass
class VoxelPane:
    """The pane of weighted rows, and their numbers as voxels.

    Attributes
    ----------
    n_voxels, n_ratings : numbers of voxels, each with at least one rating, and of ratings
    n_ties : voxels whose readers disagree evenly
    n_zero_probability : ratings of a class whose probability is 0
    """

    pane: Pane = field(default_factory=lambda: Pane(SPEC))
    n_voxels: int = 0
    n_ratings: int = 0
    n_ties: int = 0
    n_zero_probability: int = 0

    def count(self, rows: WeightedRows) -> None:
        """Add the voxels of rows."""
        p, (negative, positive) = rows.probability, rows.label_counts.T
        self.n_voxels += rows.n_voxels
        self.n_ratings += rows.n_of(rows.rated)
        self.n_ties += rows.n_of(negative == positive)
        impossible = np.where(p == 0.0, positive, 0) + np.where(p == 1.0, negative, 0)
        self.n_zero_probability += rows.n_of(impossible)

    def evaluate(self, keys: Sequence[str], settings: EvaluationSettings) -> Result:
        """Return metrics."""
        result: Result = self.pane.evaluate(
            list(keys), scope=settings.scope, **_options(settings)
        ).to_dict()
        metrics = {key: self._counted(each) for key, each in result["metrics"].items()}
        return self._counted(result) | {"metrics": metrics}

    def reliability(self, settings: EvaluationSettings) -> Result:
        """Return the reliability table."""
        result: Result = self.pane.reliability(**_options(settings)).to_dict()
        voxels = self.pane.reliability(**_options(settings) | {"raters": "mean"}).to_dict()
        table = [
            each | {"count": round(each["weight"]), "n_predictions": round(own["weight"])}
            for each, own in zip(result["table"], voxels["table"], strict=True)
        ]
        return self._counted(result) | {"table": table}

    def temperature(self, settings: EvaluationSettings) -> Result:
        """Return the fitted temperature."""
        return self._counted(
            self.pane.temperature(raters=settings.raters, ci=settings.ci).to_dict()
        )

    def _counted(self, result: Row) -> Result:
        """Return a result whose counts of rows are counts of voxels."""
        counts = {
            "n": self.n_voxels,
            "n_predictions": self.n_voxels,
            "n_labelled": self.n_voxels,
            "n_ratings": self.n_ratings,
            "n_majority_ties": self.n_ties,
            "n_zero_probability": self.n_zero_probability,
        }
        return {name: counts.get(name, each) for name, each in result.items()}


def _options(settings: EvaluationSettings) -> dict[str, Any]:
    return {"bins": settings.bins, "raters": settings.raters, "ci": settings.ci}
