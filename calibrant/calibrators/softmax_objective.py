"""Mean NLL of softmax maps as a function of their parameters: value, gradient, Hessian, Newton steps.

Arrays are (n_classes, n): sums over classes then run along complete rows of memory, which is several times faster than
sums of ten numbers each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.calibrators.linear_forms import LinearForm
from calibrant.calibrators.rows import LabelledRows

Floats = NDArray[np.float64]
Change = Callable[[Floats], Floats]
GRADIENT_TOLERANCE = 1e-14  # largest slope at which Newton steps end
MAX_NEWTON = 40
MIN_NEWTON = 4
MAX_HALVINGS = 20
ARMIJO = 1e-4  # share of the predicted decrease that a step must reach


class SoftmaxPoints:
    """Rows as input of all forms: log-probabilities (n_classes, n), weights, and sums that no parameter changes.

    Parameters
    ----------
    rows : LabelledRows, some of them with weight
    inputs : float64 (n, n_classes), finite log-probabilities
    """

    def __init__(self, rows: LabelledRows, inputs: Floats) -> None:
        self.x = np.ascontiguousarray(inputs.T)
        self.share = np.ascontiguousarray(rows.share.T)
        self.weight, self.unit = rows.weight, rows.unit
        self.total = float(rows.weight.sum())
        self.k, self.n = self.x.shape
        # Buffer for what `DiagonalObjective` computes at every step: allocating it again costs more than the computation.
        self.moved, self.weighted = np.empty((2, self.k, self.n)), np.empty((2, self.k, self.n))


@dataclass(frozen=True)
class _Evaluated:
    """Results at some parameters, cached because value, gradient and Hessian are requested separately."""

    parameters: Floats
    probabilities: Floats
    value: float
    gradient: Floats


class SoftmaxObjective:
    """Fit of one form to some points: its penalised mean NLL with derivatives, and Newton steps.

    `DiagonalObjective` in `diagonal_objective` overrides methods for forms with `own`.
    """

    def __init__(self, points: SoftmaxPoints, form: LinearForm) -> None:
        self.points, self.form = points, form
        self._everything = np.vstack([points.x, np.ones(points.n)])
        self._observed = points.share @ self._everything.T
        self._last: _Evaluated | None = None

    def value_and_gradient(self, parameters: Floats) -> tuple[float, Floats]:
        """Return the penalised mean NLL and its gradient."""
        found = self._at(parameters)
        return found.value, found.gradient

    def _at(self, parameters: Floats) -> _Evaluated:
        if self._last is None or not np.array_equal(self._last.parameters, parameters):
            self._last = self._evaluated(np.array(parameters))
        return self._last

    def _evaluated(self, parameters: Floats) -> _Evaluated:
        form, points = self.form, self.points
        coefficients = form.coefficients(parameters)
        z = self.linear(coefficients)
        top = z.max(axis=0)
        z -= top
        power = np.exp(z, out=z)
        norm = power.sum(axis=0)
        power /= norm
        nll = float(points.weight @ (np.log(norm) + top)) - float(
            (coefficients * self._observed).sum()
        )
        slope = self.expected(power) - self._observed
        moved = form.deviations(parameters)
        value = nll / points.total + float(form.penalty @ moved**2)
        gradient = form.collected(slope / points.total) + 2.0 * form.penalty * moved
        return _Evaluated(parameters, power, value, gradient)

    def probabilities(self, parameters: Floats) -> Floats:
        """Return probabilities, (n_classes, n)."""
        return self._at(parameters).probabilities

    def linear(self, coefficients: Floats) -> Floats:
        """Return the linear forms of every row, (n_classes, n)."""
        return np.asarray(coefficients @ self._everything)

    def expected(self, p: Floats) -> Floats:
        """Return weighted sums of features by class under probabilities (n_classes, n); (n_classes, n_features)."""
        return np.asarray((p * self.points.weight) @ self._everything.T)

    def features(self, class_index: int) -> Floats:
        """Return the features of the form of a class, (n_features, n)."""
        return self._everything

    def squares(self) -> Floats:
        """Return sums of squared features, (n_classes, n_features)."""
        everything = self._everything**2 @ self.points.weight
        return np.broadcast_to(everything, (self.points.k, len(everything)))

    def hessian(self, parameters: Floats) -> Floats:
        """Return the Hessian of the penalised mean NLL, (n_parameters, n_parameters)."""
        hessian = self.likelihood_hessian(self.probabilities(parameters)) / self.points.total
        return hessian + np.diag(2.0 * self.form.penalty)

    def likelihood_hessian(self, p: Floats) -> Floats:
        """Return the Hessian of the summed NLL under probabilities (n_classes, n)."""
        place, x = self.form.place, self._everything
        hessian = np.zeros((self.form.n_parameters, self.form.n_parameters))
        free = np.flatnonzero(
            place[:, 0] >= 0
        ).tolist()  # a class has all of its coefficients, or none
        for one in free:
            weighted = p[one] * self.points.weight
            for other in (each for each in free if each >= one):
                block = (x * (weighted * ((one == other) - p[other]))) @ x.T
                hessian[np.ix_(place[one], place[other])] = block
                hessian[np.ix_(place[other], place[one])] = block.T
        return hessian

    def evaluations_for(self, work: float) -> int:
        """Return the number of evaluations of value and gradient that cost this number of multiplications."""
        return int(work / (2.0 * self.points.n * self.form.place.size))

    def newton_steps_for(self, work: float) -> int:
        """Return the number of Newton steps that cost this number of multiplications, within `MAX_NEWTON`."""
        each = 0.5 * self.points.n * self.form.place.size * self.form.place.shape[1] * self.points.k
        return int(min(MAX_NEWTON, max(MIN_NEWTON, work / each)))

    def centred(self) -> tuple[Change, Change, Change]:
        """Return maps of parameters to those of centred inputs, back, and of gradients to gradients.

        Log-probabilities share a large mean. It correlates slopes with intercepts, and L-BFGS then takes several times the steps.
        """
        shape = (-1, self.form.place.shape[1])  # of the classes that have coefficients
        mean = self._everything[:-1] @ self.points.weight
        mean = mean / self.points.total

        def there(at: Floats) -> Floats:
            each = at.reshape(shape).copy()
            each[:, -1] += each[:, :-1] @ mean
            return each.ravel()

        def back(at: Floats) -> Floats:
            each = at.reshape(shape).copy()
            each[:, -1] -= each[:, :-1] @ mean
            return each.ravel()

        def slopes(gradient: Floats) -> Floats:
            each = gradient.reshape(shape).copy()
            each[:, :-1] -= np.outer(each[:, -1], mean)
            return each.ravel()

        return there, back, slopes

    def inside(self, at: Floats, gradient: Floats) -> NDArray[np.bool_]:
        """Return a mask of the parameters that no bound limits."""
        if self.form.bounds is None:
            return np.ones(len(at), np.bool_)
        low, high = self.form.bounds
        return ~(((at <= low) & (gradient > 0)) | ((at >= high) & (gradient < 0)))

    def newton(self, at: Floats, most: int = MAX_NEWTON) -> tuple[Floats, int]:
        """Take Newton steps, halved until they lower the loss enough, or the gradient if rounding hides the loss."""
        value, gradient = self.value_and_gradient(at)
        for step in range(most):
            free = self.inside(at, gradient)
            if self._norm(at, gradient) < GRADIENT_TOLERANCE:
                return at, step
            hessian = self.hessian(at)
            move = _step(hessian, gradient, free)
            better = self._along(at, move, value, gradient)
            if better is None:
                return at, step
            at, value, gradient = better
        return at, most

    def _along(
        self, at: Floats, move: Floats, value: float, gradient: Floats
    ) -> tuple[Floats, float, Floats] | None:
        """Return the longest of the halved steps that is good enough, with loss and gradient there."""
        norm = self._norm(at, gradient)
        for halving in range(MAX_HALVINGS):
            tried = at - move * 0.5**halving
            if self.form.bounds is not None:
                tried = np.clip(tried, *self.form.bounds)
            new_value, new_gradient = self.value_and_gradient(tried)
            if not np.isfinite(new_value):
                continue
            enough = new_value <= value - ARMIJO * float(gradient @ (at - tried))
            hidden = abs(new_value - value) <= 1e-13 * (1.0 + abs(value))
            if (enough and not hidden) or (hidden and self._norm(tried, new_gradient) < norm):
                return tried, new_value, new_gradient
        return None

    def _norm(self, at: Floats, gradient: Floats) -> float:
        return float(np.abs(gradient[self.inside(at, gradient)]).max(initial=0.0))

    def _least(self, hessian: Floats, free: NDArray[np.bool_]) -> float:
        scale = self._scale()[free]
        values = np.linalg.eigvalsh(hessian / np.outer(scale, scale))
        return float(values[0]) if len(values) else 0.0

    def curvature_and_errors(
        self, at: Floats, free: NDArray[np.bool_]
    ) -> tuple[float, Floats | None]:
        """Return minimal curvature in standardised parameters, and standard errors by unit."""
        hessian = self.hessian(at)[np.ix_(free, free)]
        by_unit = self.unit_slopes(at)[free]
        inverse = np.linalg.pinv(hessian, hermitian=True, rcond=1e-13)
        meat = by_unit @ by_unit.T / self.points.total**2
        errors = np.full(len(at), np.nan)
        errors[free] = np.sqrt(np.maximum(np.diag(inverse @ meat @ inverse), 0.0))
        return self._least(hessian, free), errors

    def unit_slopes(self, at: Floats) -> Floats:
        """Return the slopes of the summed NLL of each unit, the penalty left out; (n_parameters, n_units)."""
        points = self.points
        residual = self.probabilities(at) * points.weight - points.share
        n_units = int(points.unit.max()) + 1
        by_unit = np.zeros((self.form.n_parameters, n_units))
        for class_index in range(points.k):
            for feature, place in zip(
                self.features(class_index), self.form.place[class_index], strict=True
            ):
                if place >= 0:
                    by_unit[place] += np.bincount(
                        points.unit, feature * residual[class_index], n_units
                    )
        return by_unit

    def _scale(self) -> Floats:
        """Return the root mean square of each parameter's features."""
        scale = np.sqrt(self.form.collected(self.squares() / self.points.total))
        return np.where(scale > 0, scale, 1.0)


def _step(hessian: Floats, gradient: Floats, free: NDArray[np.bool_]) -> Floats:
    """Return Newton's step, 0 for parameters at an active bound."""
    move = np.zeros(len(gradient))
    move[free] = np.linalg.lstsq(hessian[np.ix_(free, free)], gradient[free], rcond=1e-13)[0]
    return move
