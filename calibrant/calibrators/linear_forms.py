"""Linear forms of log-probabilities, one per class, which maps fitted to rows share: their coefficients and their values for a row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class LinearForm:
    """Coefficients of a linear form per class. Axis 0 is the class of the form; the last feature is the intercept.

    Attributes
    ----------
    own : whether a class's form reads only its own log-probability
    place : int64 (n_classes, n_features), index of the free parameter at that place, -1 if fixed
    fixed : float64 (n_classes, n_features), values if fixed
    penalty : float64 (n_parameters,), factor of the square of each free parameter in the mean loss
    start : float64 (n_parameters,)
    centre : float64 (n_parameters,) or None: from where the squares count. Default: from 0.
    bounds : minimum and maximum of every free parameter, or None
    """

    own: bool
    place: Ints
    fixed: Floats
    penalty: Floats
    start: Floats
    bounds: tuple[float, float] | None = None
    centre: Floats | None = None

    def deviations(self, parameters: Floats) -> Floats:
        """Return the parameters less their centre."""
        return parameters if self.centre is None else parameters - self.centre

    @property
    def n_parameters(self) -> int:
        return len(self.start)

    def coefficients(self, parameters: Floats) -> Floats:
        """Return the coefficients, (n_classes, n_features)."""
        free = self.place >= 0
        return np.asarray(np.where(free, parameters[np.where(free, self.place, 0)], self.fixed))

    def collected(self, values: Floats) -> Floats:
        """Sum values (n_classes, n_features) over the places of each free parameter, (n_parameters,)."""
        free = self.place >= 0
        return np.bincount(self.place[free], values[free], self.n_parameters).astype(np.float64)


def probabilities_of(logits: Floats) -> Floats:
    """Return the softmax of rows."""
    power = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(power / power.sum(axis=1, keepdims=True))
