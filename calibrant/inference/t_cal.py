"""T-Cal: a test of calibration by debiased squared gaps at several numbers of bins, adaptive to the smoothness of the miscalibration.

With few bins, smooth miscalibration over wide ranges of the score is found; with many, narrow peaks. The statistic is the largest
standardised value over all numbers of bins; labels drawn from the scores give its distribution for a calibrated model.

Source: Lee, Huang, Hassani, Dobriban (JMLR 2023), the debiased plug-in statistic and its adaptive test. The paper bounds the
critical value by a constant per number of bins; here it is simulated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats, ratio

N_DRAWS = 500
MIN_ROWS = 100
ASSUMPTION = (
    "a small p-value needs no assumption; to find a miscalibration, its gap must be a Hoelder-smooth function of the score, "
    "which has no peaks narrower than a bin"
)


def squared_gaps(residual: Floats, place: NDArray[np.int64], bins: int) -> Floats:
    """Return the debiased mean squared gap of bins, from products of residuals of different rows only.

    Parameters
    ----------
    residual : float64 (..., n), outcomes minus scores
    place : int64 (n,), each row's bin, in ascending order
    bins : int

    Returns
    -------
    float64 (...)
    """
    count = np.bincount(place, minlength=bins)
    filled = count > 0
    starts = (np.cumsum(count) - count)[filled]
    total = np.add.reduceat(residual, starts, axis=-1)
    squares = np.add.reduceat(residual**2, starts, axis=-1)
    return np.asarray(((total**2 - squares) / count[filled]).sum(axis=-1) / residual.shape[-1])


def t_cal(score: Floats, outcome: Floats, seed: int, n_draws: int = N_DRAWS) -> dict[str, Any]:
    """Return the p-value of the adaptive test.

    Parameters
    ----------
    score : float64 (n,), probabilities; independent rows of equal weight
    outcome : float64 (n,), 0 or 1
    seed : of the draws
    n_draws : of labels of a calibrated model

    Returns
    -------
    dict: `p_value`; `bins`, the number at which the statistic is largest; `n`; `assumption`

    Examples
    --------
    >>> score = np.linspace(0.01, 0.99, 200)
    >>> found = t_cal(score, (score > 0.5).astype(float), 0)
    >>> round(found["p_value"], 3), found["n"]
    (0.002, 200)
    """
    order = np.argsort(score, kind="stable")
    ranked, observed = score[order], outcome[order]
    drawn = np.random.default_rng(seed).random((n_draws, len(ranked))) < ranked
    residual = np.concatenate([observed[None], drawn]) - ranked
    numbers = 2 ** np.arange(1, max(int(np.log2(len(ranked) / 2.0)), 1) + 1)
    # Row 0 is the data, the others a calibrated model.
    found = np.stack(
        [
            squared_gaps(residual, np.minimum((ranked * m).astype(np.int64), m - 1), int(m))
            for m in numbers
        ]
    )
    # Of data and draws together: they are then exchangeable, and the p-value is exact for any n.
    spread = found.std(axis=1)
    found = ratio(found, spread[:, None])
    largest = found.max(axis=0)
    reached = int((largest[1:] >= largest[0]).sum())
    return {
        "p_value": (1.0 + reached) / (1.0 + n_draws),
        "bins": int(numbers[int(found[:, 0].argmax())]),
        "n": len(ranked),
        "assumption": ASSUMPTION,
    }
