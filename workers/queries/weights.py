"""The option `weights` of fits: each prediction with its weight, or each independent unit with weight one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import Field

from calibrant.calibrators.unit_weighting import BY_UNIT, unit_weighted
from calibrant.core.pane import Pane
from calibrant_server.workers.queries.kind import Inputs

Weights = Literal["prediction", "unit"]
WEIGHTS: Any = Field(
    "prediction",
    description="prediction: as sent. unit: every unit (patient, item) has weight one, as in the drift alarm.",
)


class _Fit(Protocol):
    """Query of a fit."""

    @property
    def weights(self) -> Weights: ...

    @property
    def raters(self) -> str: ...


@dataclass(frozen=True)
class Weighted:
    """The pane that is fitted to, and what a result reports about its weights."""

    pane: Pane
    about: dict[str, object] = field(default_factory=dict)


def weighted(inputs: Inputs, query: _Fit) -> Weighted:
    """Return the window under the requested weights.

    Raises
    ------
    CalibrationInputError
        Units share predictions, and no row of the window is stored.
    """
    if query.weights != BY_UNIT:
        return Weighted(inputs.pane)
    found = unit_weighted(inputs.pane, query.raters)
    return Weighted(found.pane, {"weights": BY_UNIT, "n_sampled": found.n_rows})
