"""The option `weights` of fits: each prediction with its weight, or each independent unit with weight one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from calibrant.calibrators.unit_weighting import BY_UNIT, unit_weighted
from calibrant.core.pane import Pane
from calibrant.results.base import says

Weights = Literal["prediction", "unit"]


def weights_of_rows() -> Any:
    """Declare the weights of a fit."""
    return says(
        "prediction: as sent. unit: every unit (patient, item) has weight one, as in the drift alarm.",
        "prediction",
    )


@dataclass(frozen=True)
class Weighted:
    """The pane that is fitted to, and what a result reports about its weights."""

    pane: Pane
    about: dict[str, object] = field(default_factory=dict)


def weighted(pane: Pane, weights: Weights, raters: str) -> Weighted:
    """Return the pane under the requested weights.

    Raises
    ------
    CalibrationInputError
        Units share predictions, and no row of the window is stored.
    """
    if weights != BY_UNIT:
        return Weighted(pane)
    found = unit_weighted(pane, raters)
    return Weighted(found.pane, {"weights": BY_UNIT, "n_sampled": found.n_rows})
