"""Minimum of a convex loss of several parameters: Newton steps within bounds, halved until they lower the loss enough.

Every map with a smooth loss is fitted by it. If the loss has no minimum, or many, the curvature shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats

Mask = NDArray[np.bool_]
Bounds = tuple[float | Floats, float | Floats]
GRADIENT_TOLERANCE = 1e-14  # largest slope at which Newton steps end
CONVERGED = 1e-7
MAX_STEPS = 100
MAX_HALVINGS = 40
ARMIJO = 1e-4  # share of the predicted decrease that a step must reach
# Parameters beyond this follow a loss that has no minimum.
RUNAWAY = 1e6
EVERYWHERE: Bounds = (-np.inf, np.inf)


class Objective(Protocol):
    """A loss of parameters (n_parameters,) with its first two derivatives."""

    def value_and_gradient(self, parameters: Floats) -> tuple[float, Floats]: ...

    def hessian(self, parameters: Floats) -> Floats: ...


@dataclass(frozen=True)
class Minimum:
    """Where a loss is smallest.

    Attributes
    ----------
    parameters, value : of the minimum
    gradient_norm : largest component of the gradient, of those without an active bound
    iterations : number of steps
    free : bool (n_parameters,), parameters that no bound limits
    """

    parameters: Floats
    value: float
    gradient_norm: float
    iterations: int
    free: Mask

    @property
    def converged(self) -> bool:
        return self.gradient_norm < CONVERGED


@dataclass(frozen=True)
class _Place:
    parameters: Floats
    value: float
    gradient: Floats
    free: Mask

    @property
    def norm(self) -> float:
        return float(np.abs(self.gradient[self.free]).max(initial=0.0))


class _Search:
    def __init__(self, objective: Objective, bounds: Bounds) -> None:
        self.objective, (self.low, self.high) = objective, bounds

    def place(self, at: Floats) -> _Place:
        value, gradient = self.objective.value_and_gradient(at)
        held = ((at <= self.low) & (gradient > 0)) | ((at >= self.high) & (gradient < 0))
        return _Place(at, value, gradient, ~held)

    def places(self, at: _Place) -> Iterator[_Place]:
        """Yield the steps halved again and again, within the bounds."""
        free, move = at.free, np.zeros(len(at.gradient))
        hessian = self.objective.hessian(at.parameters)[np.ix_(free, free)]
        move[free] = np.linalg.lstsq(hessian, at.gradient[free], rcond=1e-13)[0]
        for halving in range(MAX_HALVINGS):
            yield self.place(np.clip(at.parameters - move * 0.5**halving, self.low, self.high))


def minimise(objective: Objective, start: Floats, bounds: Bounds = EVERYWHERE) -> Minimum:
    """Return the minimum of a convex loss.

    Parameters
    ----------
    objective : the loss
    start : float64 (n_parameters,)
    bounds : smallest and largest value of the parameters, of one or of each

    Source
    ------
    Bertsekas (SIAM J. Control 1982) for steps within bounds; Armijo (Pacific J. Math. 1966) for their lengths.
    """
    search, steps = _Search(objective, bounds), 0
    at = search.place(np.clip(start, *bounds))
    while (
        steps < MAX_STEPS
        and at.norm >= GRADIENT_TOLERANCE
        and np.abs(at.parameters).max() < RUNAWAY
    ):
        better = next((each for each in search.places(at) if _is_better(each, at)), None)
        if better is None:
            break
        at, steps = better, steps + 1
    return Minimum(at.parameters, at.value, at.norm, steps, at.free)


def _is_better(new: _Place, old: _Place) -> bool:
    """Return whether a step lowers the loss enough, or the gradient if rounding hides the loss."""
    if not np.isfinite(new.value):
        return False
    if abs(new.value - old.value) <= 1e-13 * (1.0 + abs(old.value)):
        return new.norm < old.norm
    predicted = float(old.gradient @ (old.parameters - new.parameters))
    return new.value <= old.value - ARMIJO * predicted
