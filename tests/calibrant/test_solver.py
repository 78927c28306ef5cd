"""The solver of maps finds minima that are known, also at bounds, and says where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibrators.solver import minimise


class Parabola:
    """(x - target)' matrix (x - target) / 2."""

    def __init__(self, matrix, target):
        self.matrix, self.target = np.array(matrix), np.array(target)

    def value_and_gradient(self, parameters):
        away = parameters - self.target
        return float(away @ self.matrix @ away) / 2.0, self.matrix @ away

    def hessian(self, parameters):
        return self.matrix


class Falling:
    """log(1 + exp(-x)): it falls for ever."""

    def value_and_gradient(self, parameters):
        return float(np.logaddexp(0.0, -parameters[0])), -1.0 / (1.0 + np.exp(parameters))

    def hessian(self, parameters):
        chance = 1.0 / (1.0 + np.exp(parameters))
        return np.diag(chance * (1.0 - chance))


def test_a_parabola_takes_one_step():
    found = minimise(Parabola([[2.0, 1.0], [1.0, 3.0]], [1.0, -2.0]), np.zeros(2))
    assert found.parameters == pytest.approx([1.0, -2.0], abs=1e-14)
    assert found.iterations == 1 and found.converged and found.free.all()


def test_a_bound_moves_the_other_parameter_to_its_conditional_minimum():
    # With x0 at least 0, x1 minimises 3/2 (x1 - 2)^2 + (x1 - 2)(0 + 1): x1 = 2 - 1/3.
    low = np.array([0.0, -np.inf])
    found = minimise(Parabola([[2.0, 1.0], [1.0, 3.0]], [-1.0, 2.0]), np.ones(2), (low, np.inf))
    assert found.parameters == pytest.approx([0.0, 2.0 - 1.0 / 3.0], abs=1e-14)
    assert found.free.tolist() == [False, True] and found.converged


def test_a_loss_without_minimum_is_followed_far_out():
    found = minimise(Falling(), np.zeros(1))
    assert found.parameters[0] > 10.0
