"""Losses along one temperature, and over one temperature for each of two classes.

Source
------
Kock, Thielke et al., section 2.3 and appendix B; figures 3 and 6 to 12.
"""

from __future__ import annotations

import numpy as np

from calibrant.calibrators.temperature.losses import OBJECTIVES, TwoClassLosses, number_of
from calibrant.core.arrays import Floats
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError

TEMPERATURES = np.arange(100, 2001) / 200.0
SURFACE_TEMPERATURES = np.arange(1, 21) / 2.0
MAX_TEMPERATURES = 10_000


def loss_curve(
    losses: TwoClassLosses, temperatures: Floats = TEMPERATURES
) -> dict[str, list[float | None]]:
    """Return NLL, Brier and ECE over scalar temperatures; lists, None if there is no number.

    Raises
    ------
    CalibrationInputError
        Temperatures that are not positive, none, or more than 10000.
    """
    found = [losses.at(np.full(2, t)) for t in _checked(temperatures)]
    curve: dict[str, list[float | None]] = {
        "temperature": list(np.asarray(temperatures, np.float64).tolist())
    }
    return curve | {name: [number_of(getattr(one, name)) for one in found] for name in OBJECTIVES}


def loss_surface(
    losses: TwoClassLosses,
    background: Floats = SURFACE_TEMPERATURES,
    foreground: Floats = SURFACE_TEMPERATURES,
) -> Result:
    """Return NLL, Brier and ECE over one temperature for class 0 and one for class 1; rows of two classes.

    Returns
    -------
    dict with `background` (a,), `foreground` (b,) and by objective a list (b, a), as the figures have them:
    background on the x axis; and `lowest`, by objective the two temperatures of the grid's lowest point and the loss there.

    Raises
    ------
    CalibrationInputError
        Another number of classes, or temperatures as in `loss_curve`.
    """
    along, up = _checked(background), _checked(foreground)
    found = [[losses.at(np.array([t0, t1])) for t0 in along] for t1 in up]
    surface: Result = {"background": along.tolist(), "foreground": up.tolist()}
    values = {
        name: np.array([[getattr(one, name) for one in row] for row in found])
        for name in OBJECTIVES
    }
    lowest = {name: _lowest(value, along, up) for name, value in values.items()}
    numbers = {
        name: [[number_of(each) for each in row] for row in value] for name, value in values.items()
    }
    return surface | numbers | {"lowest": lowest}


def _lowest(values: Floats, along: Floats, up: Floats) -> dict[str, float] | None:
    if not np.isfinite(values).any():
        return None
    row, column = divmod(int(np.nanargmin(values)), len(along))
    return {
        "background": float(along[column]),
        "foreground": float(up[row]),
        "value": float(values[row, column]),
    }


def _checked(temperatures: Floats) -> Floats:
    values = np.asarray(temperatures, np.float64)
    if (
        values.ndim != 1
        or not 1 <= len(values) <= MAX_TEMPERATURES
        or not (np.isfinite(values) & (values > 0)).all()
    ):
        detail = f"1 to {MAX_TEMPERATURES} positive temperatures"
        raise CalibrationInputError.at("/temperatures", "range", detail)
    return values
