"""Further membership kernels of cases' bins, from raw rows: a cubic spline and a Gaussian, besides square and triangle.

Hard bins and triangles are the B-splines of degree 0 and 1 around the bins' centres. The cubic one is of degree 3; the
Gaussian has the triangle's variance and is divided by its sum over bins. What a kernel would give to bins beyond 0 or 1 is
mirrored, as the triangles' flat ends are, so that the memberships of a score sum to 1. Stored tables have the sums for square
and triangle only: these two need rows.

Source
------
Barfoot et al., section 3.2, names spline and Gaussian as extensions and defines none; B-splines: de Boor (1978).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrant.core.arrays import Floats, Ints
from calibrant.core.batch_sums import BatchSums
from calibrant.segmentation.case_bins import SOFT_EMPTY, CaseBins, soft_place
from calibrant.segmentation.case_tables import Layout, numbered

KERNELS = ("spline", "gaussian")
# Neighbours to each side: a cubic spline reaches two bins; the Gaussian is 4e-18 of its peak beyond four.
REACH = {"spline": 2, "gaussian": 4}
GAUSSIAN_SD = 1.0 / np.sqrt(6.0)  # of a bin's width, as the triangle's


def memberships(score: Floats, bins: int, kernel: str) -> tuple[Ints, Floats]:
    """Return the bins of each score, and its memberships; a bin may occur twice if it is its own mirror image.

    Parameters
    ----------
    score : float64 (n,), in [0, 1]
    bins : int
    kernel : "soft" (the triangle), "spline" or "gaussian"

    Returns
    -------
    int64 (n_neighbours, n) in [0, bins), float64 (n_neighbours, n) in [0, 1] that sum to 1 over neighbours

    Examples
    --------
    >>> place, share = memberships(np.array([0.5]), 3, "spline")
    >>> place[:, 0].tolist(), share[:, 0].round(4).tolist()
    ([0, 0, 1, 2, 2], [0.0, 0.1667, 0.6667, 0.1667, 0.0])
    """
    if kernel == "soft":
        lower, upper = soft_place(score, bins)
        return np.stack([lower, np.minimum(lower + 1, bins - 1)]), np.stack([1.0 - upper, upper])
    along = score * bins - 0.5
    reach = REACH[kernel]
    near = np.rint(along) + np.arange(-reach, reach + 1)[:, None]
    away = np.abs(along - near)
    share = _cubic(away) if kernel == "spline" else np.exp(-0.5 * (away / GAUSSIAN_SD) ** 2)
    return _mirrored(near.astype(np.int64), bins), share / share.sum(axis=0)


def kernel_bins(
    batch_sums: BatchSums, layout: Layout, bins: int, kernel: str, policy: int, hard: CaseBins
) -> CaseBins:
    """Return bins of every case and class under a kernel.

    Parameters
    ----------
    batch_sums : of a batch with case names
    layout : the classes, which may be unions
    kernel : as in `memberships`
    policy : place in `POLICIES`
    hard : the same cases' hard bins, which supply the totals

    Returns
    -------
    CaseBins; a bin below a weight of 0.01 is empty, as with triangles.
    """
    assert batch_sums.batch.cases is not None
    names, case = numbered(batch_sums.batch.cases)
    shape = (len(names), layout.n_classes, bins)
    weight, confidence, correct = (np.zeros(shape) for _ in range(3))
    mine = batch_sums.weights * (batch_sums.n_ratings if policy == 0 else 1)
    for slot, members in enumerate(layout.members):
        score = np.minimum(batch_sums.columns[list(members)].sum(axis=0), 1.0)
        belongs = np.isin(batch_sums.correct_ratings.class_index, members)
        correct_ratings = np.bincount(
            batch_sums.correct_ratings.row[belongs],
            batch_sums.policy_weights[policy][belongs],
            batch_sums.n,
        )
        place, share = memberships(score, bins, kernel)
        at = case * bins + place
        for sums, values in (
            (weight, mine),
            (confidence, mine * score),
            (correct, correct_ratings),
        ):
            added = np.bincount(at.ravel(), (share * values).ravel(), len(names) * bins)
            sums[:, slot] = added.reshape(len(names), bins)
    return replace(
        hard,
        weight=weight,
        confidence=confidence,
        correct=correct,
        least=SOFT_EMPTY,
        gap_error=np.zeros(shape),
    )


def _cubic(away: Floats) -> Floats:
    """Return the cubic B-spline at a distance in bin widths."""
    inner = 2.0 / 3.0 - away**2 + away**3 / 2.0
    outer = np.maximum(2.0 - away, 0.0) ** 3 / 6.0
    return np.where(away < 1.0, inner, outer)


def _mirrored(place: Ints, bins: int) -> Ints:
    """Return places with those beyond the ends mirrored."""
    round_trip = np.mod(place, 2 * bins)
    return np.asarray(np.minimum(round_trip, 2 * bins - 1 - round_trip))
