"""Fitted methods of predicting how far raters disagree: a concentration, a temperature, both, a head on features.

Source: Mimori, Sasada, Matsui, Sato, Diagnostic Uncertainty Calibration (AISTATS 2021), section 5 and appendix D.2; the head's
objective as in their published code (penalty 0.005 on the mean square of log alpha0), solved by L-BFGS on all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from calibrant.calibrators.cell_fits import probabilities_of
from calibrant.core.arrays import Floats
from calibrant.core.documents import Extra
from calibrant.raters.concentration import PENALTY
from calibrant.raters.rated_rows import RatedRows

METHODS = ("raw", "alpha", "temperature", "temperature_alpha", "joint", "head")
LOG_ALPHA = (-8.0 * np.log(2.0), 12.0 * np.log(2.0))
LOG_BETA = (-np.log(32.0), np.log(32.0))
STILL = 1e-9
OPTIONS = {"maxiter": 2000, "maxfun": 5000, "gtol": 1e-12, "ftol": 0.0, "maxcor": 20}


@dataclass(frozen=True)
class Fit:
    """One fitted calibration method.

    Attributes
    ----------
    log_beta : of the inverse temperature
    coefficients : float64 (n_features + 1,) of log alpha0 on standardised features, the intercept last; None if not used
    middle, scale : float64 (n_features,), of the standardisation
    proof : gradient norm, iterations, objective before and after, at_bound; empty if nothing was fitted
    """

    log_beta: float
    coefficients: Floats | None
    middle: Floats
    scale: Floats
    proof: Extra

    def mean(self, rows: RatedRows) -> Floats:
        """Return class probabilities, (n, n_classes)."""
        return probabilities_of(np.exp(self.log_beta) * rows.logits)

    def concentration(self, rows: RatedRows) -> Floats | None:
        """Return alpha0 of each row, (n,); None if not used."""
        return self.concentration_of(rows.features)

    def concentration_of(self, features: Floats) -> Floats | None:
        """Return alpha0 from features, (n, n_features) to (n,); None if not used."""
        if self.coefficients is None:
            return None
        design = (features - self.middle) / self.scale
        place = design @ self.coefficients[:-1] + self.coefficients[-1]
        return np.asarray(np.exp(np.clip(place, *LOG_ALPHA)))


def dirichlet_multinomial_loss(
    mean: Floats, log_alpha: Floats, ratings: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the negative log-likelihood of ratings without the multinomial coefficient, and its slopes.

    Parameters
    ----------
    mean : float64 (n, n_classes), positive for classes with ratings
    log_alpha : float64 (n,)
    ratings : float64 (n, n_classes)

    Returns
    -------
    loss : float64 (n,), in nats
    by_log_alpha : float64 (n,)
    by_mean : float64 (n, n_classes)
    """
    alpha = np.exp(log_alpha)
    n = ratings.sum(axis=1)
    prior = alpha[:, None] * mean
    there = ratings > 0
    safe = np.where(there, prior, 1.0)
    terms = np.where(
        there, scipy.special.gammaln(safe + ratings) - scipy.special.gammaln(safe), 0.0
    )
    slopes = np.where(there, scipy.special.psi(safe + ratings) - scipy.special.psi(safe), 0.0)
    loss = scipy.special.gammaln(alpha + n) - scipy.special.gammaln(alpha) - terms.sum(axis=1)
    by_alpha = scipy.special.psi(alpha + n) - scipy.special.psi(alpha) - (slopes * mean).sum(axis=1)
    return loss, alpha * by_alpha, -alpha[:, None] * slopes


def fit_method(method: str, rows: RatedRows, penalty: float = PENALTY) -> Fit:
    """Fit one of `METHODS` to rows.

    Parameters
    ----------
    method : one of `METHODS`
    rows : RatedRows
    penalty : factor of the mean of (log alpha0)^2
    """
    k = rows.features.shape[1]
    middle, scale = np.zeros(k), np.ones(k)
    if method == "raw":
        return Fit(0.0, None, middle, scale, {})
    if method == "temperature":
        return _temperature(rows, middle, scale)
    if method == "joint":
        return _solved(rows, 0.0, penalty, middle, scale, with_beta=True)
    log_beta = _temperature(rows, middle, scale).log_beta if method == "temperature_alpha" else 0.0
    if method != "head":
        return _solved(rows, log_beta, penalty, middle, scale)
    middle = np.average(rows.features, axis=0, weights=rows.weight)
    spread = np.sqrt(np.average((rows.features - middle) ** 2, axis=0, weights=rows.weight))
    return _solved(rows, 0.0, penalty, middle, np.where(spread > 0, spread, np.inf), with_head=True)


def _temperature(rows: RatedRows, middle: Floats, scale: Floats) -> Fit:
    """Fit the inverse temperature of minimal multinomial NLL of the ratings."""
    weight = rows.weight
    total = float(weight.sum())

    def loss(at: Floats) -> tuple[float, Floats]:
        beta = float(np.exp(at[0]))
        z = beta * rows.logits
        z = z - z.max(axis=1, keepdims=True)
        power = np.exp(z)
        norm = power.sum(axis=1)
        nll = rows.total * np.log(norm) - (rows.ratings * z).sum(axis=1)
        mean = (power * rows.logits).sum(axis=1) / norm
        slope = rows.total * mean - (rows.ratings * rows.logits).sum(axis=1)
        return float(weight @ nll) / total, np.array([beta * float(weight @ slope) / total])

    at, proof = _minimum(loss, np.zeros(1), [LOG_BETA])
    return Fit(float(at[0]), None, middle, scale, proof)


def _solved(
    rows: RatedRows,
    log_beta: float,
    penalty: float,
    middle: Floats,
    scale: Floats,
    with_beta: bool = False,
    with_head: bool = False,
) -> Fit:
    """Fit log alpha0, constant or linear in standardised features, with or without the temperature, by the ratings' NLL."""
    weight = rows.weight
    total = float(weight.sum())
    design = np.ones((len(rows), 1))
    if with_head:
        design = np.column_stack([(rows.features - middle) / scale, design])
    width = design.shape[1]

    def loss(at: Floats) -> tuple[float, Floats]:
        beta = float(np.exp(at[-1])) if with_beta else float(np.exp(log_beta))
        mean = probabilities_of(beta * rows.logits)
        place = design @ at[:width]
        clipped = np.clip(place, *LOG_ALPHA)
        each, by_alpha, by_mean = dirichlet_multinomial_loss(mean, clipped, rows.ratings)
        value = float(weight @ (each + penalty * clipped**2)) / total
        slope = (
            np.where(place == clipped, weight * (by_alpha + 2.0 * penalty * clipped), 0.0) / total
        )
        gradient = design.T @ slope
        if with_beta:
            centred = rows.logits - (mean * rows.logits).sum(axis=1, keepdims=True)
            turn = (by_mean * mean * centred).sum(axis=1)
            gradient = np.append(gradient, beta * float(weight @ turn) / total)
        return value, gradient

    bounds: list[tuple[float | None, float | None]] = [(None, None)] * (width - 1) + [LOG_ALPHA]
    start = np.zeros(width + with_beta)
    at, proof = _minimum(loss, start, bounds + [LOG_BETA] * with_beta)
    coefficients = np.zeros(len(middle) + 1)
    coefficients[len(middle) + 1 - width :] = at[:width]
    return Fit(float(at[-1]) if with_beta else log_beta, coefficients, middle, scale, proof)


def _minimum(loss: Any, start: Floats, bounds: Any) -> tuple[Floats, Extra]:
    """Minimise a smooth loss by L-BFGS; return the minimum and its proof."""
    found = scipy.optimize.minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=OPTIONS
    )
    at = np.asarray(found.x, np.float64)
    value, gradient = loss(at)
    at_bound = np.array(
        [
            (low is not None and x <= low and g > 0) or (high is not None and x >= high and g < 0)
            for x, g, (low, high) in zip(at, gradient, bounds, strict=True)
        ]
    )
    norm = float(np.abs(gradient[~at_bound]).max(initial=0.0))
    proof = {
        "gradient_norm": norm,
        "converged": norm < STILL * 100,
        "iterations": int(found.nit),
        "objective_before": float(loss(start)[0]),
        "objective_after": float(value),
        "at_bound": bool(at_bound.any()),
    }
    return at, proof
