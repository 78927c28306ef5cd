"""Objective of forms that read only their own class's log-probability: value, gradient and Hessian without sums over pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.calibrators.linear_forms import LinearForm
from calibrant.calibrators.softmax_objective import (
    MAX_NEWTON,
    Change,
    SoftmaxObjective,
    SoftmaxPoints,
)

Floats = NDArray[np.float64]


class DiagonalObjective(SoftmaxObjective):
    """SoftmaxObjective of forms that read only their own class's log-probability: no sum over pairs of classes is needed."""

    def __init__(self, points: SoftmaxPoints, form: LinearForm) -> None:
        self.points, self.form = points, form
        own = np.einsum("kn,kn->k", points.share, points.x)
        self._observed = np.stack([own, points.share.sum(axis=1)], axis=1)
        self._last = None
        places = form.place.T.ravel()
        self._pick = (places == np.arange(form.n_parameters)[:, None]).astype(np.float64)
        first = int(self._pick[0].argmax())
        self._run = slice(first, first + form.n_parameters)
        self._is_run = np.array_equal(self._pick, np.eye(len(places))[self._run])

    def linear(self, coefficients: Floats) -> Floats:
        return self.points.x * coefficients[:, :1] + coefficients[:, 1:]

    def expected(self, p: Floats) -> Floats:
        points = self.points
        np.multiply(p, points.x, out=points.moved[0])
        return np.stack([points.moved[0] @ points.weight, p @ points.weight], axis=1)

    def features(self, class_index: int) -> Floats:
        return np.stack([self.points.x[class_index], np.ones(self.points.n)])

    def newton_steps_for(self, work: float) -> int:
        return MAX_NEWTON

    def centred(self) -> tuple[Change, Change, Change]:
        return _unchanged, _unchanged, _unchanged

    def squares(self) -> Floats:
        own = self.points.x**2 @ self.points.weight
        return np.stack([own, np.full(self.points.k, self.points.total)], axis=1)

    def likelihood_hessian(self, p: Floats) -> Floats:
        points, k = self.points, self.points.k
        moved, weighted = points.moved, points.weighted
        np.multiply(p, points.x, out=moved[0])
        moved[1] = p
        cross, alone = moved @ points.weight
        np.multiply(moved, points.weight, out=weighted)
        own = np.einsum("kn,kn->k", weighted[0], points.x)
        each = np.eye(k)
        squares = np.block([[each * own, each * cross], [each * cross, each * alone]])
        first, second = weighted.reshape(2 * k, -1), moved.reshape(2 * k, -1)
        if self._is_run:
            run = self._run
            return np.asarray(squares[run, run] - first[run] @ second[run].T)
        pick = self._pick
        return np.asarray(pick @ squares @ pick.T - (pick @ first) @ (pick @ second).T)


def objective_of(points: SoftmaxPoints, form: LinearForm) -> SoftmaxObjective:
    """Return the objective of the form on the points."""
    return DiagonalObjective(points, form) if form.own else SoftmaxObjective(points, form)


def _unchanged(at: Floats) -> Floats:
    return at
