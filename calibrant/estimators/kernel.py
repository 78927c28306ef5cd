"""Kernel calibration error: the accuracy at each score is a beta-kernel mean over the others, so there are no bins.

The functions use groups of equal score, with weights. The cost is the square of their number, in bounded memory. Each sample is left
out of its own estimate: alone (`label`), or with every other rating of its prediction (`instance`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.core.arrays import Floats, ratio
from calibrant.core.cells import Cells

CLIP = 1e-6
LEAVES = ("label", "instance")
BANDWIDTHS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
_BLOCK = 1 << 18
_LEAST = 1e-290


@dataclass(frozen=True)
class KernelPoints:
    """Groups of samples of one score each; float64 (n_points,).

    Attributes
    ----------
    score : in [CLIP, 1 - CLIP], not decreasing
    weight, correct_ratings : of the group's samples
    own_weight, own_correct : what is left out of a sample's own estimate. For a single rating own_hits is nan: its outcome, 1 for a hit and
        0 for a miss.
    """

    score: Floats
    weight: Floats
    correct_ratings: Floats
    own_weight: Floats
    own_correct: Floats


def points_of(cells: Cells, leave: str, fractional: bool) -> KernelPoints:
    """Return the points of cells that have weight.

    Parameters
    ----------
    leave : of `LEAVES`
    fractional : whether samples are predictions with a share of ratings, so that a single label is not known

    Notes
    -----
    What is left out of a prediction is the mean over the cell's predictions: exact where a cell holds one.
    """
    score = np.clip(cells.mean, CLIP, 1.0 - CLIP)
    samples = np.where(cells.weight > 0, cells.weight_squared / cells.weight, 1.0)
    if leave == "label" and not fractional:
        return KernelPoints(
            score, cells.weight, cells.correct, samples, np.full(len(cells), np.nan)
        )
    single = (cells.count == cells.predictions) & (not fractional)
    own = cells.weight / cells.predictions
    correct_ratings = np.where(single, np.nan, cells.correct / cells.predictions)
    return KernelPoints(
        score, cells.weight, cells.correct, np.where(single, samples, own), correct_ratings
    )


def kernel_rows(score: Floats, bandwidth: float) -> Iterator[tuple[slice, Floats]]:
    """Yield rows of the kernel matrix, some at a time: density at score i of a beta distribution about score j.

    Each row is scaled by a factor of its own, which cancels in a kernel mean.

    Source
    ------
    Chen, Beta kernel estimators for density functions (1999); Popordanoska, Sayer, Blaschko (NeurIPS 2022).
    """
    first, second = score / bandwidth, (1.0 - score) / bandwidth
    constant = scipy.special.betaln(first + 1.0, second + 1.0)
    up, down = np.log(score)[:, None], np.log1p(-score)[:, None]
    step = max(1, _BLOCK // max(len(score), 1))
    for start in range(0, len(score), step):
        rows = slice(start, start + step)
        matrix = up[rows] * first
        matrix += down[rows] * second
        matrix -= constant
        matrix -= matrix.max(axis=1, keepdims=True)
        yield rows, np.exp(matrix, out=matrix)


def kernel_distances(
    points: KernelPoints, correct_ratings: Floats, bandwidth: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the summed distance of score and leave-one-out kernel accuracy at each point, for one or many outcomes.

    Parameters
    ----------
    points : Points
    correct_ratings : float64 (n_outcomes, n_points), the points' own or drawn ones
    bandwidth : of the beta kernel

    Returns
    -------
    float64 (n_outcomes, n_points), 0 at points that have no other near enough for an estimate; and whether each point has one.

    Source
    ------
    Riera-Marin et al. (MR-kdeECE); Popordanoska, Sayer, Blaschko (NeurIPS 2022).
    """
    distance = np.zeros((len(points.score), len(correct_ratings)))
    estimated = np.zeros(len(points.score), bool)
    weights = points.weight[:, None]
    outcomes = np.ascontiguousarray(correct_ratings.T)
    for rows, matrix in kernel_rows(points.score, bandwidth):
        at = np.arange(*rows.indices(len(points.score)))
        own = matrix[at - rows.start, at][:, None]
        matrix[at - rows.start, at] = 0.0
        rest = matrix @ weights + own * np.maximum(weights[at] - points.own_weight[at, None], 0.0)
        among = matrix @ outcomes
        near = (rest > _LEAST)[:, 0]
        distance[at[near]] = _distance(
            points, at[near], outcomes, own[near], among[near], rest[near]
        )
        estimated[at] = near
    return distance.T, estimated


def kernel_error(
    points: KernelPoints, correct_ratings: Floats, bandwidth: float
) -> tuple[Floats, float]:
    """Return the mean distance over samples, float64 (n_outcomes,), and the weight of excluded samples, which are isolated.

    The mean is nan where every sample is isolated.
    """
    distance, estimated = kernel_distances(points, correct_ratings, bandwidth)
    used_weight = float(points.weight[estimated].sum())
    mean = (
        distance.sum(axis=1) / used_weight if used_weight else np.full(len(correct_ratings), np.nan)
    )
    return mean, float(points.weight[~estimated].sum())


def resampled_errors(points: KernelPoints, times: Floats, bandwidth: float) -> Floats:
    """Return the mean distance over the samples of resamples. Each takes points repeatedly, as separate predictions.

    Parameters
    ----------
    points : one per prediction
    times : float64 (n_resamples, n_points)
    bandwidth : of the beta kernel

    Returns
    -------
    float64 (n_resamples,), nan where every sample is isolated
    """
    total, used_weight = np.zeros((2, len(times)))
    weights, outcomes = points.weight[:, None], points.correct_ratings[:, None]
    taken_weight, taken_correct = (times * points.weight).T, (times * points.correct_ratings).T
    for rows, matrix in kernel_rows(points.score, bandwidth):
        at = np.arange(*rows.indices(len(points.score)))
        own = matrix[at - rows.start, at][:, None]
        matrix[at - rows.start, at] = 0.0
        # The same point taken again stays, at distance zero; of its own prediction the other ratings.
        again = own * np.maximum(times.T[at] - 1.0, 0.0)
        left = own * np.maximum(weights[at] - points.own_weight[at, None], 0.0)
        rest = matrix @ taken_weight + again * weights[at] + left
        among = matrix @ taken_correct + again * outcomes[at]
        near = (rest > _LEAST) & (times.T[at] > 0)
        distance = _distance(points, at, outcomes, own, among, np.where(near, rest, 1.0))
        total += np.where(near, times.T[at] * distance, 0.0).sum(axis=0)
        used_weight += np.where(near, taken_weight[at], 0.0).sum(axis=0)
    return ratio(total, used_weight, np.nan)


def _distance(
    points: KernelPoints,
    at: NDArray[np.int64],
    outcomes: Floats,
    own: Floats,
    among: Floats,
    rest: Floats,
) -> Floats:
    """Return distances at some points, (n_at, n_outcomes): of correct and of incorrect ratings separately where a sample's outcome is its own."""
    score, correct_ratings = points.score[at, None], outcomes[at]
    incorrect_ratings = points.weight[at, None] - correct_ratings
    shared = points.own_correct[at, None]
    alone = np.isnan(shared)
    left = np.where(alone, points.own_weight[at, None], shared)
    for_correct = (among + own * np.maximum(correct_ratings - left, 0.0)) / rest
    for_incorrect = np.where(alone, (among + own * correct_ratings) / rest, for_correct)
    return np.asarray(
        correct_ratings * np.abs(for_correct - score)
        + incorrect_ratings * np.abs(for_incorrect - score)
    )


def log_likelihood(points: KernelPoints, bandwidth: float) -> float:
    """Return the leave-one-out log-likelihood of the scores under their kernel density; minus infinity where one is isolated."""
    first, second = points.score / bandwidth, (1.0 - points.score) / bandwidth
    constant = scipy.special.betaln(first + 1.0, second + 1.0)
    others = float(points.weight.sum()) - points.own_weight
    total = 0.0
    for rows, matrix in kernel_rows(points.score, bandwidth):
        at = np.arange(*rows.indices(len(points.score)))
        weight = np.broadcast_to(points.weight, matrix.shape).copy()
        weight[at - rows.start, at] = np.maximum(points.weight[at] - points.own_weight[at], 0.0)
        score = points.score[at, None]
        scale = (np.log(score) * first + np.log1p(-score) * second - constant).max(axis=1)
        with np.errstate(divide="ignore"):
            density = np.log((matrix * weight).sum(axis=1)) + scale - np.log(others[at])
        total += float(points.weight[at] @ density)
    return total


def likeliest_bandwidth(points: KernelPoints) -> tuple[float, bool]:
    """Return the bandwidth of `BANDWIDTHS` with the largest leave-one-out likelihood, and whether it is the first or last."""
    found = [log_likelihood(points, bandwidth) for bandwidth in BANDWIDTHS]
    best = int(np.argmax(found))
    return BANDWIDTHS[best], best in (0, len(BANDWIDTHS) - 1)
