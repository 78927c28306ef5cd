"""Class probabilities after some ratings, and the disagreement that a belief predicts.

A belief is a distribution over a prediction's label distribution zeta: a point, a Dirichlet of mean f and
concentration alpha0, an ensemble of points, or an ensemble of Dirichlets. All results are closed forms. The
likelihood of ratings y under a member is the product over classes of zeta_k ** y_k.

Source: Mimori, Sasada, Matsui, Sato, Diagnostic Uncertainty Calibration (AISTATS 2021), eqs. 17 to 19.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from calibrant.core.arrays import Floats, ratio
from calibrant.core.errors import CalibrationInputError, Violation


@dataclass(frozen=True)
class Posterior:
    """Belief after ratings.

    Attributes
    ----------
    probabilities : float64 (n, n_classes), means of the label distributions
    disagreement : float64 (n,), probability that two further raters differ
    weights : float64 (members, n), the members' weights; None without an ensemble
    """

    probabilities: Floats
    disagreement: Floats
    weights: Floats | None = None


def point_disagreement(probabilities: ArrayLike) -> Floats:
    """Return the probability that two raters differ if the prediction is the label distribution: 1 - sum f^2.

    Parameters
    ----------
    probabilities : float64 (..., n_classes)

    Returns
    -------
    float64 (...,) in [0, 1 - 1 / n_classes]

    Examples
    --------
    >>> float(point_disagreement([0.5, 0.5]))
    0.5
    """
    f = np.asarray(probabilities, np.float64)
    return np.asarray(1.0 - np.einsum("...k,...k->...", f, f))


def dirichlet_disagreement(probabilities: ArrayLike, concentration: ArrayLike) -> Floats:
    """Return the probability that two raters differ under a Dirichlet: alpha0 / (alpha0 + 1) times the point's.

    Parameters
    ----------
    probabilities : float64 (..., n_classes), the mean
    concentration : float64 (...,) or a number, positive; infinity gives the point

    Returns
    -------
    float64 (...,)

    Raises
    ------
    CalibrationInputError
        A concentration that is not positive.

    Examples
    --------
    >>> float(dirichlet_disagreement([0.5, 0.5], 1.0))
    0.25
    """
    alpha = _positive(concentration)
    return np.asarray(1.0 / (1.0 + 1.0 / alpha) * point_disagreement(probabilities))


def ensemble_disagreement(members: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    """Return the probability that two raters differ under an ensemble of points: the weighted mean of theirs.

    Parameters
    ----------
    members : float64 (members, n, n_classes)
    weights : float64 (members,) or (members, n), not negative. Default: equal.

    Returns
    -------
    float64 (n,)
    """
    return _mean_over_members(point_disagreement(members), weights)


def dirichlet_ensemble_disagreement(
    members: ArrayLike, concentrations: ArrayLike, weights: ArrayLike | None = None
) -> Floats:
    """Return the probability that two raters differ under an ensemble of Dirichlets.

    Parameters
    ----------
    members : float64 (members, n, n_classes), their means
    concentrations : float64 (members, n), (members, 1) or a number, positive
    weights : as `ensemble_disagreement`

    Returns
    -------
    float64 (n,)
    """
    return _mean_over_members(dirichlet_disagreement(members, concentrations), weights)


def dirichlet_posterior(
    probabilities: ArrayLike, concentration: ArrayLike, label_counts: ArrayLike
) -> Posterior:
    """Return a Dirichlet after any number of ratings: mean (alpha0 f + y) / (alpha0 + n), concentration alpha0 + n.

    Parameters
    ----------
    probabilities : float64 (n, n_classes)
    concentration : float64 (n,) or a number, positive
    label_counts : int (n, n_classes); a row without ratings keeps its probabilities

    Returns
    -------
    Posterior

    Raises
    ------
    CalibrationInputError
        Shapes that do not match, negative label counts, or a concentration that is not positive.

    Source
    ------
    Mimori et al. (AISTATS 2021), eq. 19, for n ratings.

    Examples
    --------
    >>> dirichlet_posterior([[0.5, 0.5]], 2.0, [[2, 0]]).probabilities.tolist()
    [[0.75, 0.25]]
    """
    f, ratings = _matched(probabilities, label_counts)
    alpha = np.broadcast_to(_positive(concentration), f.shape[:1])
    total = ratings.sum(axis=1)
    pull = 1.0 / (1.0 + total / alpha)  # weight of the prediction, alpha0 / (alpha0 + n)
    share = ratio(ratings, total[:, None])
    mean = np.where(total[:, None] > 0, pull[:, None] * f + (1.0 - pull[:, None]) * share, f)
    return Posterior(mean, dirichlet_disagreement(mean, alpha + total))


def ensemble_posterior(
    members: ArrayLike, label_counts: ArrayLike, weights: ArrayLike | None = None
) -> Posterior:
    """Return an ensemble of points after ratings: members weighted by the likelihood of the ratings, prod_k zeta_k ** y_k.

    Parameters
    ----------
    members : float64 (members, n, n_classes)
    label_counts : int (n, n_classes)
    weights : float64 (members,), before the ratings. Default: equal.

    Returns
    -------
    Posterior

    Raises
    ------
    CalibrationInputError
        Shapes that do not match, negative label counts, or ratings that are impossible under all members.

    Examples
    --------
    >>> after = ensemble_posterior([[[0.9, 0.1]], [[0.1, 0.9]]], [[1, 0]])
    >>> after.weights[:, 0].round(3).tolist(), after.probabilities[0].round(3).tolist()
    ([0.9, 0.1], [0.82, 0.18])
    """
    points, ratings = _matched(members, label_counts)
    after = _reweighted(scipy.special.xlogy(ratings, points).sum(axis=2), weights)
    mean = np.einsum("sn,snk->nk", after, points)
    return Posterior(mean, ensemble_disagreement(points, after), after)


def dirichlet_ensemble_posterior(
    members: ArrayLike,
    concentrations: ArrayLike,
    label_counts: ArrayLike,
    weights: ArrayLike | None = None,
) -> Posterior:
    """Return an ensemble of Dirichlets after ratings: each member updated, weighted by its Dirichlet-multinomial evidence.

    Parameters
    ----------
    members : float64 (members, n, n_classes), means
    concentrations : float64 (members, n), (members, 1) or a number, positive and finite
    label_counts : int (n, n_classes)
    weights : float64 (members,), before the ratings. Default: equal.

    Returns
    -------
    Posterior

    Raises
    ------
    CalibrationInputError
        As `ensemble_posterior` and `dirichlet_posterior`.
    """
    means, ratings = _matched(members, label_counts)
    alpha = np.broadcast_to(_positive(concentrations), means.shape[:2])
    if not np.isfinite(alpha).all():
        raise CalibrationInputError.at(
            "/concentrations",
            "finite",
            "Received an infinite concentration of a member; expected finite ones.",
        )
    prior = alpha[:, :, None] * means
    total = ratings.sum(axis=1)
    with np.errstate(invalid="ignore"):
        terms = np.where(
            ratings > 0, scipy.special.gammaln(prior + ratings) - scipy.special.gammaln(prior), 0.0
        )
    evidence = (
        terms.sum(axis=2) + scipy.special.gammaln(alpha) - scipy.special.gammaln(alpha + total)
    )
    after = _reweighted(evidence, weights)
    updated = (prior + ratings) / (alpha + total)[:, :, None]
    mean = np.einsum("sn,snk->nk", after, updated)
    return Posterior(mean, dirichlet_ensemble_disagreement(updated, alpha + total, after), after)


def posterior_epistemic_loss(
    epistemic: float, irreducible: float, concentration: float, n_ratings: int = 1
) -> float:
    """Return the mean squared distance from the label distribution after n further ratings, under one concentration.

    The update is alpha0 / (alpha0 + n) of the prediction's error and n / (alpha0 + n) of the ratings' mean error,
    which are independent. So the loss follows from EL and IL alone, and is unbiased if they are.

    Parameters
    ----------
    epistemic, irreducible : EL and IL, unbiased
    concentration : alpha0, positive; infinity leaves EL
    n_ratings : int, at least 0

    Returns
    -------
    float; minimal at concentration IL / EL (Mimori et al., Theorem 1.2, for one rating).

    Examples
    --------
    >>> posterior_epistemic_loss(0.5, 0.5, 1.0)
    0.25
    """
    pull = 1.0 / (1.0 + n_ratings / concentration)
    spread = (1.0 - pull) ** 2 * irreducible / n_ratings if n_ratings else 0.0
    return pull**2 * epistemic + spread


def _matched(probabilities: ArrayLike, label_counts: ArrayLike) -> tuple[Floats, Floats]:
    """Return both as float64, checked: the last two axes of the first equal the second's."""
    f, ratings = np.asarray(probabilities, np.float64), np.asarray(label_counts, np.float64)
    if ratings.ndim != 2 or f.shape[-2:] != ratings.shape or f.ndim > 3:
        detail = (
            f"Received label counts of shape {ratings.shape} for probabilities of shape {f.shape}."
        )
        raise CalibrationInputError.at("/label_counts", "shape", detail)
    bad = np.flatnonzero(
        ((ratings < 0) | (ratings != np.floor(ratings)) | ~np.isfinite(ratings)).any(axis=1)
    )
    if len(bad):
        raise CalibrationInputError(
            [
                Violation(
                    f"/label_counts/{row}",
                    "counts",
                    "Received a negative or fractional label count; expected integers of at least 0.",
                )
                for row in bad
            ]
        )
    return f, ratings


def _positive(concentration: ArrayLike) -> Floats:
    alpha = np.asarray(concentration, np.float64)
    if not (alpha > 0).all():
        raise CalibrationInputError.at(
            "/concentration",
            "range",
            "Received a concentration that is not positive; expected positive ones.",
        )
    return alpha


def _mean_over_members(values: Floats, weights: ArrayLike | None) -> Floats:
    if weights is None:
        return np.asarray(values.mean(axis=0))
    given = np.asarray(weights, np.float64)
    spread = np.broadcast_to(given[:, None] if given.ndim == 1 else given, values.shape)
    return np.asarray((spread * values).sum(axis=0) / spread.sum(axis=0))


def _reweighted(log_likelihood: Floats, weights: ArrayLike | None) -> Floats:
    """Return the members' weights after ratings, float64 (members, n)."""
    prior = np.ones(len(log_likelihood)) if weights is None else np.asarray(weights, np.float64)
    with np.errstate(divide="ignore"):
        joint = log_likelihood + np.log(prior)[:, None]
    total = scipy.special.logsumexp(joint, axis=0)
    bad = np.flatnonzero(~np.isfinite(total))
    if len(bad):
        detail = "Received ratings that have probability 0 under every member; expected ratings that one member allows."
        raise CalibrationInputError(
            [Violation(f"/label_counts/{row}", "impossible", detail) for row in bad]
        )
    return np.asarray(np.exp(joint - total))
