"""Many detectors at once: slices, classes and raters overlap, so these rules hold under any dependence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def flagged(p: Mapping[str, float], false_share: float = 0.05) -> list[str]:
    """Return slices that changed by their p-values, so that on average at most a share of flagged ones is due to chance.

    Parameters
    ----------
    p : each slice's p-value of the last cohort
    false_share : in (0, 1)

    Returns
    -------
    names, smallest p-value first.

    Raises
    ------
    ValueError
        `false_share` outside (0, 1).

    Source
    ------
    Benjamini and Yekutieli, The control of the false discovery rate in multiple testing under dependency (Ann Stat 2001).

    Examples
    --------
    >>> flagged({"a": 1e-4, "b": 0.01, "c": 1.0, "d": 0.5})
    ['a', 'b']
    """
    if not 0.0 < false_share < 1.0:
        raise ValueError(f"Received false_share={false_share}; expected a number in (0, 1).")
    names = sorted(p, key=lambda name: (p[name], name))
    rank = np.arange(1, len(names) + 1)
    limit = rank * false_share / (max(len(names), 1) * (1.0 / rank).sum())
    enough = np.flatnonzero(np.array([p[name] for name in names]) <= limit)
    return names[: int(enough[-1]) + 1 if len(enough) else 0]
