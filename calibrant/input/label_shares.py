"""Soft labels: the shares of the classes among a row's ratings.

Shares with a number of ratings are ratings, and are read as these. Shares alone stand for one rating that is divided among the classes: they are
held as counts of `PER_RATING` parts, so that every mean over ratings is a mean over shares, to 1.5e-11.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError
from calibrant.input.score_columns import ScoreColumn, vector
from calibrant.input.value_checks import ViolationCollector

PER_RATING = 2**36
MAX_RATINGS = 1_000_000
# Shares rounded to two decimals name a number of ratings, while these are so far apart that there is only one.
_ROUNDING, _UNIQUE = 0.005, 0.25
POLICIES = ("pooled", "mean")
_NOT_WHOLE = (
    "Received shares that are no multiples of 1 / n_ratings; expected shares of so many ratings. If the shares are no ratings, such as "
    "smoothed labels, leave n_ratings out."
)

Ints = NDArray[np.int64]


def counts_of(
    shares: Any, n_ratings: Any, n_classes: int, violations: ViolationCollector
) -> tuple[Ints, int]:
    """Return counts by class, int64 (n, n_classes), and the number of counts that one rating has."""
    rows = ScoreColumn("label_shares", shares, violations).read(n_classes).rows
    if rows.shape[1] != n_classes:
        detail = f"Received shares of {rows.shape[1]} classes; expected {n_classes}."
        raise CalibrationInputError.at("/label_shares", "n_classes", detail)
    if n_ratings is None:
        return _whole(rows, np.full(len(rows), PER_RATING)), PER_RATING
    number = vector("n_ratings", n_ratings, violations)
    bad = ~((number >= 0) & (number <= MAX_RATINGS) & (number == np.floor(number)))
    for row in np.flatnonzero(bad):
        detail = f"Received {number[row]:.6g} ratings; expected an integer from 0 to {MAX_RATINGS}."
        violations.row("n_ratings", int(row), "integer", detail)
    number = np.where(bad, 0.0, number)
    off = np.abs(rows * number[:, None] - np.round(rows * number[:, None])).max(axis=1)
    most = np.minimum(_ROUNDING * number, _UNIQUE)
    violations.rows("label_shares", off > most + 1e-9, "shares", _NOT_WHOLE)
    return _whole(rows, number.astype(np.int64)), 1


def _whole(rows: NDArray[np.float64], total: Ints) -> Ints:
    """Return whole numbers near rows * total, with these totals; what rounding leaves over goes to the largest."""
    counts = np.round(rows * total[:, None]).astype(np.int64)
    largest = rows.argmax(axis=1)
    counts[np.arange(len(rows)), largest] += total - counts.sum(axis=1)
    return counts


def reject_policy(raters: str) -> None:
    """Reject a policy that chooses one class of a row.

    Raises
    ------
    CalibrationInputError
        "majority" or "single".
    """
    if raters not in POLICIES:
        detail = f"Received raters={raters!r:.60} with label_shares; expected {' or '.join(POLICIES)}: shares have no single rating to choose."
        raise CalibrationInputError.at("/raters", "label_shares", detail)


def reject_without_number(per_rating: int) -> None:
    """Reject shares alone where ratings are stored or counted.

    Raises
    ------
    CalibrationInputError
        As described.
    """
    if per_rating > 1:
        detail = "Received label_shares without n_ratings; expected how many ratings each row stands for. Only evaluate, reliability, "
        detail += "fit_temperature and POST /v1/score take shares alone."
        raise CalibrationInputError.at("/n_ratings", "missing", detail)
