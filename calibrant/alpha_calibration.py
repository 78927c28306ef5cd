"""Alpha-calibration side by side: raw, alpha, temperature, temperature with alpha, both at once, a head on features.

Which of them predicts disagreement best depends on the data: a concentration can only lower the predicted disagreement,
and so helps where raters agree more than predicted and harms where they do not. So all are fitted on one half of the
units and compared on the other, and the best there is named.

Source: Mimori, Sasada, Matsui, Sato, Diagnostic Uncertainty Calibration (AISTATS 2021), sections 5.1 to 5.3; the head's
objective as in their published code (penalty 0.005 on the mean square of log alpha0), solved by L-BFGS on all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import gammaln, psi

from calibrant.batch import Batch
from calibrant.concentration import PENALTY
from calibrant.disagreement import table_of_rows
from calibrant.errors import CalibrationInputError
from calibrant.filling import Filling
from calibrant.hashing import mix
from calibrant.maps.base import CLIP
from calibrant.maps.form import probabilities_of
from calibrant.maps.rows import log_probabilities, mean_by_unit
from calibrant.view import NotAnswerable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
METHODS = ("raw", "alpha", "temperature", "temperature_alpha", "joint", "head")
CRITERIA = ("disagreement_loss", "epistemic_loss_after_one_vote")
LOG_ALPHA = (-8.0 * np.log(2.0), 12.0 * np.log(2.0))
LOG_BETA = (-np.log(32.0), np.log(32.0))
FEWEST_UNITS = 20
STILL = 1e-9
OPTIONS = {"maxiter": 2000, "maxfun": 5000, "gtol": 1e-12, "ftol": 0.0, "maxcor": 20}


@dataclass(frozen=True)
class VotedRows:
    """Predictions with at least two votes, none of them for a class at probability 0.

    Attributes
    ----------
    logits : float64 (n, n_classes), log-probabilities held at ln 1e-12 from below
    votes : float64 (n, n_classes)
    weight : float64 (n,)
    features : float64 (n, n_features), of the head
    unit, half : int64 (n,)
    n_one_vote, n_zero_probability : predictions left out
    """

    logits: Floats
    votes: Floats
    weight: Floats
    features: Floats
    unit: Ints
    half: Ints
    n_one_vote: int
    n_zero_probability: int

    def __len__(self) -> int:
        return len(self.logits)

    def take(self, index: NDArray[Any]) -> VotedRows:
        names = ("logits", "votes", "weight", "features", "unit", "half")
        return replace(self, **{name: getattr(self, name)[index] for name in names})

    @property
    def total(self) -> Floats:
        """Votes of each row, (n,)."""
        return np.asarray(self.votes.sum(axis=1))

    @property
    def disagreement(self) -> Floats:
        """Share of pairs of votes that differ, (n,)."""
        y, n = self.votes, self.total
        return np.asarray(1.0 - (y * (y - 1.0)).sum(axis=1) / (n * (n - 1.0)))


@dataclass(frozen=True)
class Fit:
    """One way of calibration, fitted.

    Attributes
    ----------
    log_beta : of the inverse temperature
    coefficients : float64 (n_features + 1,) of log alpha0 on standardised features, the intercept last; None for none
    middle, scale : float64 (n_features,), of the standardisation
    proof : gradient norm, iterations, objective before and after, at_bound; empty where nothing was fitted
    """

    log_beta: float
    coefficients: Floats | None
    middle: Floats
    scale: Floats
    proof: dict[str, Any]

    def mean(self, rows: VotedRows) -> Floats:
        """Class probabilities, (n, n_classes)."""
        return probabilities_of(np.exp(self.log_beta) * rows.logits)

    def concentration(self, rows: VotedRows) -> Floats | None:
        """alpha0 of each row, (n,); None where there is none."""
        if self.coefficients is None:
            return None
        design = (rows.features - self.middle) / self.scale
        place = design @ self.coefficients[:-1] + self.coefficients[-1]
        return np.exp(np.clip(place, *LOG_ALPHA))


def voted_rows(batch: Batch, features: ArrayLike | None = None) -> VotedRows:
    """Predictions of a batch that alpha-calibration can speak of.

    Parameters
    ----------
    batch : Batch
    features : float64 (n, n_features), of every prediction of the batch; its log-probabilities where None

    Raises
    ------
    CalibrationInputError
        Features that are not finite or not one row a prediction.
    """
    filling = Filling(batch)
    labelled = filling.batch
    logits = log_probabilities(labelled)
    x = np.maximum(logits, np.log(CLIP))
    design = x
    if features is not None:
        given = np.asarray(features, np.float64)
        if given.ndim != 2 or len(given) != batch.n or not np.isfinite(given).all():
            detail = f"features are finite, one row for each of {batch.n} predictions"
            raise CalibrationInputError.at("/features", "shape", detail)
        design = given[filling.labelled]
    votes = labelled.label_counts.astype(np.float64)
    several = votes.sum(axis=1) >= 2
    impossible = several & ((votes > 0) & ~np.isfinite(logits)).any(axis=1)
    hashes = labelled.unit_hash
    rows = VotedRows(
        logits=x,
        votes=votes,
        weight=filling.weights,
        features=design,
        unit=np.unique(hashes, return_inverse=True)[1].astype(np.int64),
        half=(mix(hashes ^ np.uint64(0xC3C3C3C3)) >> np.uint64(63)).astype(np.int64),
        n_one_vote=int((~several).sum()),
        n_zero_probability=int(impossible.sum()),
    )
    return rows.take(np.flatnonzero(several & ~impossible & (filling.weights > 0)))


def dirichlet_multinomial_loss(
    mean: Floats, log_alpha: Floats, votes: Floats
) -> tuple[Floats, Floats, Floats]:
    """Negative log-likelihood of votes without the multinomial coefficient, and its slopes.

    Parameters
    ----------
    mean : float64 (n, n_classes), positive where there are votes
    log_alpha : float64 (n,)
    votes : float64 (n, n_classes)

    Returns
    -------
    loss : float64 (n,), in nats
    by_log_alpha : float64 (n,)
    by_mean : float64 (n, n_classes)
    """
    alpha = np.exp(log_alpha)
    n = votes.sum(axis=1)
    prior = alpha[:, None] * mean
    there = votes > 0
    held = np.where(there, prior, 1.0)
    terms = np.where(there, gammaln(held + votes) - gammaln(held), 0.0)
    slopes = np.where(there, psi(held + votes) - psi(held), 0.0)
    loss = gammaln(alpha + n) - gammaln(alpha) - terms.sum(axis=1)
    by_alpha = psi(alpha + n) - psi(alpha) - (slopes * mean).sum(axis=1)
    return loss, alpha * by_alpha, -alpha[:, None] * slopes


def fit_method(method: str, rows: VotedRows, penalty: float = PENALTY) -> Fit:
    """One of `METHODS` fitted to rows.

    Parameters
    ----------
    method : one of `METHODS`
    rows : VotedRows
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


def compare_calibrations(
    batch: Batch,
    *,
    penalty: float = PENALTY,
    criterion: str = "disagreement_loss",
    bins: int = 15,
    ci: float = 0.95,
    features: ArrayLike | None = None,
) -> dict[str, Any]:
    """Every way of alpha-calibration on the same validation part, and the best there.

    Parameters
    ----------
    batch : Batch, raw rows or a pane's kept sample
    penalty : factor of the mean of (log alpha0)^2
    criterion : one of `CRITERIA`, by which the best is picked
    bins : equal-width bins of the predicted disagreement for `disagreement_ce`
    ci : nominal coverage of the gains over raw
    features : float64 (n, n_features) for the head; log-probabilities where None

    Returns
    -------
    dict with `best`, `criterion`, `n_fit`, `n_validation`, `n_one_vote`, `n_zero_probability`, and `methods`: for each
    of `METHODS` the `disagreement_loss`, `disagreement_ce`, `epistemic_loss` and `epistemic_loss_after_one_vote` of the
    validation part, the `gain` over raw by the criterion with its interval, `temperature`, `concentration` (of the
    head: its median), `coefficients` and `proof` from the other part.

    Raises
    ------
    NotAnswerable
        `one_vote`, `zero_probability` or `few_units`.
    CalibrationInputError
        An option outside its range.
    """
    if criterion not in CRITERIA:
        detail = f"criterion is one of {', '.join(CRITERIA)}"
        raise CalibrationInputError.at("/criterion", "one_of", detail)
    if not 0.0 <= penalty <= 1e6:
        raise CalibrationInputError.at("/penalty", "range", "penalty lies in 0 to 1e6")
    rows = voted_rows(batch, features)
    _refuse(rows)
    fit_part, validation = (rows.take(np.flatnonzero(rows.half == side)) for side in (0, 1))
    fits = {method: fit_method(method, fit_part, penalty) for method in METHODS}
    losses = {method: row_losses(fit, validation) for method, fit in fits.items()}
    total = float(validation.weight.sum())
    shown: dict[str, Any] = {}
    for method, fit in fits.items():
        means = {
            name: float(validation.weight @ each) / total for name, each in losses[method].items()
        }
        predicted = _predicted(fit, validation)
        difference = (losses["raw"][criterion] - losses[method][criterion]) * validation.weight
        alpha = fit.concentration(validation)
        shown[method] = {
            **means,
            "disagreement_ce": table_of_rows(predicted, validation.disagreement, bins).error(),
            "gain": mean_by_unit(difference, validation.weight, validation.unit, ci),
            "temperature": float(np.exp(-fit.log_beta)),
            "concentration": None if alpha is None else float(np.median(alpha)),
            "coefficients": _coefficients(fit) if method == "head" else None,
            "proof": fit.proof or None,
        }
    return {
        "best": min(METHODS, key=lambda method: shown[method][criterion]),
        "criterion": criterion,
        "penalty": penalty,
        "bins": bins,
        "ci": ci,
        "n_fit": len(fit_part),
        "n_validation": len(validation),
        "n_one_vote": rows.n_one_vote,
        "n_zero_probability": rows.n_zero_probability,
        "methods": shown,
    }


def row_losses(fit: Fit, rows: VotedRows) -> dict[str, Floats]:
    """Unbiased losses of each row, (n,) each: of predicted disagreement, of probabilities before and after a vote.

    After one vote the error is alpha0 / (alpha0 + 1) of the prediction's and 1 / (alpha0 + 1) of the vote's.
    """
    n = rows.total[:, None]
    share, observed = rows.votes / n, rows.disagreement
    predicted = _predicted(fit, rows)
    chance = (share * (1.0 - share) / (n - 1.0)).sum(axis=1)
    epistemic = ((share - fit.mean(rows)) ** 2).sum(axis=1) - chance
    alpha = fit.concentration(rows)
    pull = np.ones(len(rows)) if alpha is None else alpha / (alpha + 1.0)
    return {
        "disagreement_loss": predicted**2 - 2.0 * predicted * observed + observed,
        "epistemic_loss": epistemic,
        "epistemic_loss_after_one_vote": pull**2 * epistemic + (1.0 - pull) ** 2 * observed,
    }


def _refuse(rows: VotedRows) -> None:
    if not len(rows):
        if rows.n_zero_probability:
            detail = "every prediction has a vote for a class at probability 0"
            raise NotAnswerable("zero_probability", detail)
        raise NotAnswerable(
            "one_vote", "one vote a prediction leaves the concentration unidentified"
        )
    if min(len(np.unique(rows.unit[rows.half == side])) for side in (0, 1)) < FEWEST_UNITS:
        detail = f"fewer than {FEWEST_UNITS} units with two votes in a half of the data"
        raise NotAnswerable("few_units", detail)


def _predicted(fit: Fit, rows: VotedRows) -> Floats:
    """Predicted disagreement, (n,)."""
    mean, alpha = fit.mean(rows), fit.concentration(rows)
    point = 1.0 - np.einsum("nk,nk->n", mean, mean)
    return point if alpha is None else np.asarray(alpha / (alpha + 1.0) * point)


def _coefficients(fit: Fit) -> dict[str, Any] | None:
    """Of log alpha0 on the features as they are."""
    if fit.coefficients is None:
        return None
    slopes = fit.coefficients[:-1] / fit.scale
    intercept = float(fit.coefficients[-1] - slopes @ fit.middle)
    return {"slopes": slopes.tolist(), "intercept": intercept, "log_bounds": list(LOG_ALPHA)}


def _temperature(rows: VotedRows, middle: Floats, scale: Floats) -> Fit:
    """The inverse temperature of least multinomial NLL of the votes."""
    weight = rows.weight
    total = float(weight.sum())

    def loss(at: Floats) -> tuple[float, Floats]:
        beta = float(np.exp(at[0]))
        z = beta * rows.logits
        z = z - z.max(axis=1, keepdims=True)
        power = np.exp(z)
        norm = power.sum(axis=1)
        nll = rows.total * np.log(norm) - (rows.votes * z).sum(axis=1)
        mean = (power * rows.logits).sum(axis=1) / norm
        slope = rows.total * mean - (rows.votes * rows.logits).sum(axis=1)
        return float(weight @ nll) / total, np.array([beta * float(weight @ slope) / total])

    at, proof = _minimum(loss, np.zeros(1), [LOG_BETA])
    return Fit(float(at[0]), None, middle, scale, proof)


def _solved(
    rows: VotedRows,
    log_beta: float,
    penalty: float,
    middle: Floats,
    scale: Floats,
    with_beta: bool = False,
    with_head: bool = False,
) -> Fit:
    """log alpha0, one or linear in standardised features, with or without the temperature, by the votes' NLL."""
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
        held = np.clip(place, *LOG_ALPHA)
        each, by_alpha, by_mean = dirichlet_multinomial_loss(mean, held, rows.votes)
        value = float(weight @ (each + penalty * held**2)) / total
        slope = np.where(place == held, weight * (by_alpha + 2.0 * penalty * held), 0.0) / total
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


def _minimum(loss: Any, start: Floats, bounds: Any) -> tuple[Floats, dict[str, Any]]:
    """Where a smooth loss is least, by L-BFGS, and the proof of it."""
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=OPTIONS)
    at = np.asarray(found.x, np.float64)
    value, gradient = loss(at)
    held = np.array(
        [
            (low is not None and x <= low and g > 0) or (high is not None and x >= high and g < 0)
            for x, g, (low, high) in zip(at, gradient, bounds, strict=True)
        ]
    )
    norm = float(np.abs(gradient[~held]).max(initial=0.0))
    proof = {
        "gradient_norm": norm,
        "converged": norm < STILL * 100,
        "iterations": int(found.nit),
        "objective_before": float(loss(start)[0]),
        "objective_after": float(value),
        "at_bound": bool(held.any()),
    }
    return at, proof
