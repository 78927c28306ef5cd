"""Logistic curves of one score: Platt scaling, of the log odds, and beta calibration, which increases and can bend at both ends.

They are fitted to labels 0 and 1 without smoothing. Scores enter as the mean of their cell; `error_bound` bounds the resulting error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibrant.calibrators.cell_fits import CLIP, log_odds, logistic, why_no_fit
from calibrant.calibrators.logistic import LogisticFit, LogisticLoss, fit_logistic, separated
from calibrant.calibrators.map_method import ONE_SCORE, FitResult, MapMethod, Options
from calibrant.core.arrays import Floats, ratio
from calibrant.core.cells import Cells
from calibrant.core.documents import Result


@dataclass(frozen=True)
class LogisticMap:
    """Description of a map.

    Attributes
    ----------
    names : of the coefficients, the intercept last
    identity : coefficients that change nothing
    features : scores (n,) and their clip to the features of the curve, (n, n_features)
    may_fall : whether the curve may decrease, so that positives below all negatives also separate the outcomes; else slopes are
        at least 0
    """

    names: tuple[str, ...]
    identity: tuple[float, ...]
    features: Callable[[Floats, float], Floats]
    may_fall: bool

    def solve(self, cells: Cells, options: Options) -> FitResult:
        reason = self._why_no_curve(cells)
        if reason is not None:
            return FitResult(None, reason)
        fit = self._fitted(cells.mean, cells.correct, cells.weight)
        details = self._diagnostics(cells, fit)
        if self.may_fall and not fit.converged:
            return FitResult(None, "not_converged", details)
        details["error_bound"] = self._cell_error(cells, fit.coefficients)
        parameters = dict(zip(self.names, fit.coefficients.tolist(), strict=True)) | {"clip": CLIP}
        warnings = ["at_bound"] if details["at_bound"] else []
        if fit.coefficients[0] < 0.0:
            warnings.append("decreasing")
        return FitResult(parameters, None, details, warnings)

    def at(self, parameters: Mapping[str, Any], score: Floats) -> Floats:
        """Return 1 / (1 + exp(-(sum of coefficient times feature + intercept)))."""
        *slopes, intercept = (parameters[name] for name in self.names)
        features = self.features(score, parameters["clip"]).T
        return logistic(sum(a * each for a, each in zip(slopes, features, strict=True)) + intercept)

    def _fitted(self, score: Floats, correct: Floats, weight: Floats) -> LogisticFit:
        least = -np.inf if self.may_fall else 0.0
        return fit_logistic(self.features(score, CLIP), correct, weight, least)

    def _why_no_curve(self, cells: Cells) -> str | None:
        """Return the reason why no curve is optimal for the cells; None if one is."""
        reason = why_no_fit(cells)
        if reason is not None:
            return reason
        if np.ptp(log_odds(cells.mean)) < 1e-12:
            return "constant_scores"
        swapped = replace(cells, correct=cells.weight - cells.correct)
        is_separable = separated(cells) or (self.may_fall and separated(swapped))
        return "separable" if is_separable else None

    def _design(self, score: Floats) -> Floats:
        return np.column_stack([self.features(score, CLIP), np.ones(len(score))])

    def _diagnostics(self, cells: Cells, fit: LogisticFit) -> Result:
        """Return diagnostics of the fit and the uncertainty of its coefficients.

        Standard errors are from the information at the optimum, with the stored variance of correct ratings: ratings of one unit in
        one cell are treated as fully dependent. None for a coefficient at its bound.
        """
        design, free = self._design(cells.mean), fit.minimum.free
        curved = _curved(cells, logistic(design @ fit.coefficients))
        x = design[:, free]
        inverse = np.linalg.pinv((x.T * curved) @ x, hermitian=True)
        spread = np.diag(inverse @ ((x.T * (curved * _dependence(cells))) @ x) @ inverse)
        used = [name for name, is_free in zip(self.names, free, strict=True) if is_free]
        errors = np.sqrt(np.maximum(spread, 0.0)).tolist()
        loss = LogisticLoss(design, cells.correct, cells.weight)
        return {
            "converged": fit.converged,
            "iterations": fit.minimum.iterations,
            "gradient_norm": fit.minimum.gradient_norm,
            "objective_before": loss.value_and_gradient(np.array(self.identity))[0],
            "objective_after": fit.minimum.value,
            "at_bound": not free.all(),
            "standard_errors": dict.fromkeys(self.names) | dict(zip(used, errors, strict=True)),
            "standard_error_method": "information, ratings of a unit in a cell dependent",
        }

    def _cell_error(self, cells: Cells, coefficients: Floats) -> float:
        """Bound the error of a fit to cell means, as the largest change of a probability over the cells.

        The bound is the sum of two parts. The first is the change if each cell's weight is at its two bounds, mean unchanged,
        instead of at its mean. The second is three standard deviations due to random positions of positives within their cell.
        """
        if (cells.lower == cells.upper).all():
            return 0.0
        low, middle, high = map(self._design, (cells.lower, cells.mean, cells.upper))
        there = np.stack([logistic(end @ coefficients) for end in (low, high)])
        other = self._fitted(*_spread_out(cells, there)).coefficients
        here = logistic(middle @ coefficients)
        moved = np.abs(logistic(middle @ other) - here)
        curved, reach = _curved(cells, here), 0.5 * (high - low)
        inverse = np.linalg.pinv((middle.T * curved) @ middle, hermitian=True)
        noise = inverse @ (reach.T * (curved * _dependence(cells))) @ reach @ inverse
        deviation = np.sqrt(np.maximum(np.einsum("nd,de,ne->n", middle, noise, middle), 0.0))
        return float((moved + 3.0 * here * (1.0 - here) * deviation).max())


def _curved(cells: Cells, chance: Floats) -> Floats:
    return np.asarray(cells.weight * chance * (1.0 - chance))


def _dependence(cells: Cells) -> Floats:
    """Return the ratio of the stored variance to that of independent ratings of weight one."""
    independent = cells.confidence * (1.0 - np.minimum(cells.mean, 1.0))
    safe = np.where(independent > 0.0, independent, 1.0)
    return np.maximum(np.where(independent > 0.0, cells.null_variance / safe, 1.0), 1.0)


def _spread_out(cells: Cells, chance: Floats) -> tuple[Floats, Floats, Floats]:
    """Split each cell's weight between its two bounds, mean unchanged; return scores, correct and weights, (2 n_cells,) each.

    Correct ratings are assigned to the two points in proportion to `chance` (2, n_cells), their probabilities of being correct.
    """
    width = cells.upper - cells.lower
    upper = ratio(cells.mean - cells.lower, width)
    share = np.stack([1.0 - np.clip(upper, 0.0, 1.0), np.clip(upper, 0.0, 1.0)])
    correct_ratings, incorrect_ratings = share * chance, share * (1.0 - chance)
    correct_ratings /= np.maximum(correct_ratings.sum(axis=0), 1e-300)
    incorrect_ratings /= np.maximum(incorrect_ratings.sum(axis=0), 1e-300)
    correct = correct_ratings * cells.correct
    weight = correct + incorrect_ratings * (cells.weight - cells.correct)
    keep = (weight > 0.0).ravel()
    score = np.stack([cells.lower, cells.upper])
    return score.ravel()[keep], correct.ravel()[keep], weight.ravel()[keep]


def _of_odds(score: Floats, clip: float) -> Floats:
    return log_odds(score, clip)[:, None]


def _of_both_logarithms(score: Floats, clip: float) -> Floats:
    clipped = np.clip(score, clip, 1.0 - clip)
    return np.stack([np.log(clipped), -np.log1p(-clipped)], axis=1)


PLATT = LogisticMap(("slope", "intercept"), (1.0, 0.0), _of_odds, may_fall=True)
BETA = LogisticMap(("a", "b", "c"), (1.0, 1.0, 0.0), _of_both_logarithms, may_fall=False)
MAPS = (
    MapMethod(
        slug="platt",
        title="Platt scaling",
        source="Platt (1999), on the log odds and with plain labels",
        input="logit",
        objective="nll",
        scopes=ONE_SCORE,
        solve=PLATT.solve,
        at=PLATT.at,
    ),
    MapMethod(
        slug="beta",
        title="Beta calibration",
        source="Kull, Silva Filho, Flach (AISTATS 2017)",
        input="probability",
        objective="nll",
        scopes=ONE_SCORE,
        solve=BETA.solve,
        at=BETA.at,
    ),
)
