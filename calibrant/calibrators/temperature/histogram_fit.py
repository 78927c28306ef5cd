"""Temperature of two classes from their confidence histogram, and how to fold it into a network.

The paper uses gradient descent; here the one-dimensional problem is solved directly.

Source
------
Kock, Thielke et al., section 2.3 and appendix B.
"""

from __future__ import annotations

import numpy as np
import scipy

from calibrant.calibrators.logistic import fit_scale
from calibrant.calibrators.temperature.ece_interpolation import plateau
from calibrant.calibrators.temperature.losses import OBJECTIVES, EceOptions, HistogramLosses
from calibrant.core.arrays import Floats
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError, check_one_of
from calibrant.segmentation.class_histograms import ConfidenceHistogram

RANGE = (0.5, 10.0)
PLATEAU = 1e-3


def fit_histogram_temperature(
    histogram: ConfidenceHistogram,
    objective: str = "nll",
    options: EceOptions | None = None,
) -> Result:
    """Fit the scalar temperature of a model of two classes to its histogram.

    T is searched in `RANGE`. NLL is convex in 1 / T and solved; Brier is solved around the best point of the grid; ECE is the best point of
    the grid in steps of .005, with the temperatures around it that are within .001 of it.

    Parameters
    ----------
    histogram : ConfidenceHistogram of two classes
    objective : "nll", "brier" or "ece"

    Returns
    -------
    dict with temperature, objective, at_bound, plateau (ECE only), before and after; without data, temperature None and a
    `reason`. All is computed at the fine bins' centres.

    Raises
    ------
    CalibrationInputError
        An option outside its range, or more than two classes.
    """
    check_one_of("objective", objective, OBJECTIVES)
    low, high = RANGE
    losses = HistogramLosses(histogram, options or EceOptions())
    result: Result = {
        "objective": objective,
        "range": [low, high],
        "temperature": None,
        "at_bound": False,
    }
    before = losses.at(np.ones(2))
    if not np.isfinite(getattr(before, objective)):
        return result | {"before": None, "after": None, "reason": "no_data"}
    if objective == "nll":
        found = {"temperature": _nll_temperature(losses, low, high)}
    else:
        found = _on_grid(losses, objective, low, high)
    at = float(found["temperature"])
    after = losses.at(np.full(2, at))
    return (
        result
        | found
        | {"at_bound": at in (low, high), "before": before.named(), "after": after.named()}
    )


def fold_temperature(weights: Floats, bias: Floats, temperature: float) -> tuple[Floats, Floats]:
    """Return a last layer that gives logits / T: weights and bias divided by T, any shape.

    Raises
    ------
    CalibrationInputError
        T is not a positive number.

    Examples
    --------
    >>> fold_temperature(np.array([[2.0]]), np.array([1.0]), 2.0)
    (array([[1.]]), array([0.5]))
    """
    if not (np.isfinite(temperature) and temperature > 0):
        detail = f"Received {temperature}; expected a positive number."
        raise CalibrationInputError.at("/temperature", "range", detail)
    return weights / temperature, bias / temperature


def _nll_temperature(losses: HistogramLosses, low: float, high: float) -> float:
    beta = fit_scale(losses.odds, losses.right, losses.mass, (1.0 / high, 1.0 / low))
    return {1.0 / low: low, 1.0 / high: high}.get(beta, 1.0 / beta)


def _on_grid(losses: HistogramLosses, objective: str, low: float, high: float) -> Result:
    inner = np.arange(np.floor(low * 200.0) + 1, np.ceil(high * 200.0)) / 200.0
    grid = np.concatenate([[low], inner, [high]])
    values = np.array([losses.loss(objective, np.full(2, t)) for t in grid])
    best = int(np.nanargmin(values))
    if objective == "brier":
        return {"temperature": _brier_temperature(losses, grid, best)}
    return {
        "temperature": float(grid[best]),
        "plateau": plateau(grid, values, best, PLATEAU),
        "plateau_tolerance": PLATEAU,
    }


def _brier_temperature(losses: HistogramLosses, grid: Floats, best: int) -> float:
    """Return the root of the slope next to the grid's best point; that point if the slope does not change its sign."""
    low, high = 1.0 / grid[min(best + 1, len(grid) - 1)], 1.0 / grid[max(best - 1, 0)]
    if losses.brier_slope(low) < 0.0 < losses.brier_slope(high):
        return 1.0 / float(scipy.optimize.brentq(losses.brier_slope, low, high, xtol=1e-14))
    return float(grid[best])
