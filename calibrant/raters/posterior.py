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


def expected_disagreement(
    members: ArrayLike, concentration: ArrayLike = np.inf, weights: ArrayLike | None = None
) -> Floats:
    """Return the probability that two raters differ under a belief: the mean over members of alpha0 / (alpha0 + 1) (1 - sum f^2).

    Parameters
    ----------
    members : float64 (n, n_classes), or (members, n, n_classes) of an ensemble: the means
    concentration : a number, float64 (n,), or (members, n) or (members, 1), positive. Default: infinity, which is a point.
    weights : float64 (members,) or (members, n), not negative. Default: equal.

    Returns
    -------
    float64 (n,) in [0, 1 - 1 / n_classes]

    Raises
    ------
    CalibrationInputError
        A concentration that is not positive.

    Examples
    --------
    >>> expected_disagreement([[0.5, 0.5]]).tolist(), expected_disagreement([[0.5, 0.5]], 1.0).tolist()
    ([0.5], [0.25])
    """
    f, alpha = np.asarray(members, np.float64), _positive(concentration)
    each = 1.0 / (1.0 + 1.0 / alpha) * (1.0 - np.einsum("...k,...k->...", f, f))
    return np.asarray(each if f.ndim == 2 else _mean_over_members(each, weights))


def after_ratings(
    members: ArrayLike,
    label_counts: ArrayLike,
    concentration: ArrayLike = np.inf,
    weights: ArrayLike | None = None,
) -> Posterior:
    """Return a belief after any number of ratings.

    Each mean becomes (alpha0 f + y) / (alpha0 + n), each concentration alpha0 + n. Members of an ensemble are weighted by the
    likelihood of the ratings: prod_k f_k ** y_k for points, else the Dirichlet-multinomial evidence.

    Parameters
    ----------
    members, concentration, weights : as in `expected_disagreement`; the weights, float64 (members,), are those before the ratings
    label_counts : int (n, n_classes); a row without ratings keeps its probabilities

    Returns
    -------
    Posterior

    Raises
    ------
    CalibrationInputError
        Shapes that do not match, negative label counts, a concentration that is not positive, or ratings that are impossible under
        all members.

    Source
    ------
    Mimori et al. (AISTATS 2021), eqs. 17 to 19, for n ratings.

    Examples
    --------
    >>> after_ratings([[0.5, 0.5]], [[2, 0]], 2.0).probabilities.tolist()
    [[0.75, 0.25]]
    >>> after = after_ratings([[[0.9, 0.1]], [[0.1, 0.9]]], [[1, 0]])
    >>> after.weights[:, 0].round(3).tolist(), after.probabilities[0].round(3).tolist()
    ([0.9, 0.1], [0.82, 0.18])
    """
    f, ratings = _matched(members, label_counts)
    alpha = np.broadcast_to(_positive(concentration), f.shape[:-1])
    total = ratings.sum(axis=1)
    pull = (1.0 / (1.0 + total / alpha))[
        ..., None
    ]  # weight of the prediction, alpha0 / (alpha0 + n)
    share = ratio(ratings, total[:, None])
    means = np.where(total[:, None] > 0, pull * f + (1.0 - pull) * share, f)
    if f.ndim == 2:
        return Posterior(means, expected_disagreement(means, alpha + total))
    after = _reweighted(_log_likelihood(f, alpha, ratings), weights)
    mean = np.einsum("sn,snk->nk", after, means)
    return Posterior(mean, expected_disagreement(means, alpha + total, after), after)


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


def _log_likelihood(means: Floats, alpha: Floats, ratings: Floats) -> Floats:
    """Return the log-likelihood of the ratings under each member, without the multinomial coefficient; float64 (members, n)."""
    gammaln, total = scipy.special.gammaln, ratings.sum(axis=1)
    is_point = ~np.isfinite(alpha)
    size = np.where(is_point, 1.0, alpha)
    prior = size[:, :, None] * means
    with np.errstate(invalid="ignore"):
        terms = np.where(ratings > 0, gammaln(prior + ratings) - gammaln(prior), 0.0)
    of_dirichlet = terms.sum(axis=2) + gammaln(size) - gammaln(size + total)
    of_point = scipy.special.xlogy(ratings, means).sum(axis=2)
    return np.asarray(np.where(is_point, of_point, of_dirichlet), np.float64)


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
