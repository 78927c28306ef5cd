"""Linear forms of log-probabilities: which coefficients there are, what they make of a row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class LinearForm:
    """Which coefficients there are. Axis 0 is the class whose linear form it is, the last feature is the intercept.

    Attributes
    ----------
    own : whether a class's form reads its own log-probability alone
    place : int64 (n_classes, n_features), number of the free parameter that stands there, -1 where fixed
    fixed : float64 (n_classes, n_features), values where fixed
    penalty : float64 (n_parameters,), factor of the square of each free parameter in the mean loss
    start : float64 (n_parameters,)
    bounds : least and greatest value of every free parameter, or None
    n_gauge : directions of the parameters that no probability depends on
    """

    own: bool
    place: Ints
    fixed: Floats
    penalty: Floats
    start: Floats
    bounds: tuple[float, float] | None = None
    n_gauge: int = 0

    @property
    def n_parameters(self) -> int:
        return len(self.start)

    def coefficients(self, parameters: Floats) -> Floats:
        """(n_classes, n_features)."""
        free = self.place >= 0
        return np.asarray(np.where(free, parameters[np.where(free, self.place, 0)], self.fixed))

    def gathered(self, values: Floats) -> Floats:
        """Sums over the places of each free parameter, (n_parameters,), of values (n_classes, n_features)."""
        free = self.place >= 0
        return np.bincount(self.place[free], values[free], self.n_parameters).astype(np.float64)


def probabilities_of(logits: Floats) -> Floats:
    """Softmax of rows."""
    power = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(power / power.sum(axis=1, keepdims=True))


def linear(inputs: Floats, coefficients: Floats, own: bool) -> Floats:
    """The linear forms of every row, (n, n_classes)."""
    if own:
        return inputs * coefficients[:, 0] + coefficients[:, 1]
    return inputs @ coefficients[:, :-1].T + coefficients[:, -1]
