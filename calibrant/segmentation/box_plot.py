"""Statistics of a box plot: quartiles, whiskers and outliers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.core.documents import Result

WHISKER = 1.5


def box(values: NDArray[np.float64]) -> Result | None:
    """Return the statistics of a box plot: quartiles, whiskers to the outermost values within 1.5 box heights, outliers.

    Parameters
    ----------
    values : float64 (n,), nan is ignored

    Returns
    -------
    dict, None without values.

    Source
    ------
    Tukey, Exploratory Data Analysis (1977).
    """
    found = np.sort(values[np.isfinite(values)])
    if not len(found):
        return None
    lower, median, upper = np.quantile(found, [0.25, 0.5, 0.75])
    reach = WHISKER * (upper - lower)
    inside = found[(found >= lower - reach) & (found <= upper + reach)]
    outside = found[(found < lower - reach) | (found > upper + reach)]
    # With few, distant values, the outermost value inside the limits can be within the box.
    return {
        "n": len(found),
        "mean": float(found.mean()),
        "lower_quartile": float(lower),
        "median": float(median),
        "upper_quartile": float(upper),
        "lower_whisker": float(min(inside[0], lower)),
        "upper_whisker": float(max(inside[-1], upper)),
        "outliers": outside.tolist(),
    }
