"""Interval of a temperature by the likelihood ratio, scaled by unit.

Twice the loss above its minimum, times H / J, is compared with a squared quantile. H is the curvature of the loss at its minimum and J the
sum over units of their squared slopes there. Where rows are independent and the model is right the two agree. Rows that depend on
each other within a unit, weights, and losses other than the log-likelihood change J alone.

Source
------
Chandler, Bate (Biometrika 2007), vertical scaling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import scipy

from calibrant.accumulators.temperature import BETAS
from calibrant.core.documents import Extra

if TYPE_CHECKING:
    from calibrant.calibrators.temperature.curve import Curve

MIN_UNITS = 30
MIN_INCORRECT_UNITS = 5
# From so many units on the normal quantile is used.
MANY_UNITS = 50
METHOD = "likelihood ratio scaled by unit"
_STEPS_PER_OCTAVE = 8
_LOG_BETAS = np.linspace(np.log(BETAS[0]), np.log(BETAS[-1]), 2 * 5 * _STEPS_PER_OCTAVE + 1)


def interval_of(
    curve: Curve, objective: str, beta: float, *, n_units: int, ci: float
) -> list[float] | None:
    """Return the temperatures whose loss is not too far above the minimum; None where the loss does not vary over units.

    At least two units.

    Parameters
    ----------
    curve : Curve
    objective : "nll" or "brier"
    beta : inverse of the fitted temperature
    n_units : units with weight
    ci : nominal coverage

    Returns
    -------
    lower and upper temperature. An end that the loss does not bound is the end of the stored range.
    """
    curvature, squares = curve.total_curvature(objective, beta), curve.squares(objective, beta)
    if squares is None or not (curvature > 0.0 and squares > 0.0):
        return None
    # Slopes at the fitted minimum vary less than at the true one.
    squares *= n_units / (n_units - 1.0)
    most = quantile(0.5 + ci / 2.0, n_units) ** 2 * squares / curvature / 2.0
    lowest = curve.total(objective, beta)

    def excess(log_beta: float) -> float:
        return curve.total(objective, float(np.exp(log_beta))) - lowest - most

    low, high = _ends(excess, float(np.log(beta)), is_convex=objective == "nll")
    return [float(np.exp(-high)), float(np.exp(-low))]


def at_most(curve: Curve, *, n_units: int, ci: float) -> float | None:
    """Return the one-sided upper limit of T where every rating is of the most probable class; None without one.

    At a temperature T that outcome has the probability exp(-L), where L is the sum of the units' losses, a unit's mean over its ratings:
    its ratings may depend on each other completely. The limit is the T at which the outcome has the probability 1 - ci, or the end of
    the stored range where it is less probable at every T.
    """
    if n_units < MIN_UNITS:
        return None

    def excess(log_beta: float) -> float:
        return curve.unit_losses(float(np.exp(log_beta)), n_units) + float(np.log1p(-ci))

    if excess(_LOG_BETAS[0]) <= 0.0:
        return None
    if excess(_LOG_BETAS[-1]) >= 0.0:
        return float(1.0 / BETAS[-1])
    root = scipy.optimize.brentq(excess, _LOG_BETAS[0], _LOG_BETAS[-1], xtol=1e-12)
    return float(np.exp(-root))


def quantile(level: float, n_units: int) -> float:
    """Return the quantile of Student's t with n_units - 1 degrees of freedom; of the normal from 50 units on.

    Examples
    --------
    >>> round(quantile(0.975, 30), 3), round(quantile(0.975, 1000), 3)
    (2.045, 1.96)
    """
    if n_units >= MANY_UNITS:
        return float(scipy.special.ndtri(level))
    return float(scipy.special.stdtrit(max(n_units - 1, 1), level))


def why_none(about: Extra) -> str | None:
    """Return why an interval would promise too much, or None. The number of incorrect units is not known of older panes."""
    if about["n_units"] < MIN_UNITS:
        return "too_few_units"
    incorrect = about["n_incorrect_units"]
    if incorrect is not None and incorrect < MIN_INCORRECT_UNITS:
        return "too_few_incorrect_units"
    return None


def _ends(excess: Callable[[float], float], at: float, is_convex: bool) -> tuple[float, float]:
    """Return the outermost places, in log beta, where the excess reaches 0; the end of the range where it does not.

    Of a convex loss they are the only ones, and are searched from the minimum outwards.
    """
    ends, split = [], int(np.searchsorted(_LOG_BETAS, at))
    for outer in (_LOG_BETAS[:split], _LOG_BETAS[split:][::-1]):
        if is_convex:
            inward = range(len(outer) - 1, -1, -1)
            inside = next((i + 1 for i in inward if excess(outer[i]) > 0.0), 0)
        else:
            inside = next((i for i, place in enumerate(outer) if excess(place) <= 0.0), len(outer))
        if inside == 0:
            ends.append(float(outer[0]) if len(outer) else at)
            continue
        near = float(outer[inside]) if inside < len(outer) else at
        ends.append(
            float(scipy.optimize.brentq(excess, float(outer[inside - 1]), near, xtol=1e-12))
        )
    return ends[0], ends[1]
