"""Many detectors at once: slices, classes and raters overlap, so these rules hold under any dependence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def threshold_of(run_length: float, n_detectors: int) -> float:
    """Return the threshold of each of several detectors that together have the false-alarm rate of one.

    Parameters
    ----------
    run_length : mean number of cohorts until a false alarm of any of them
    n_detectors : at least 1

    Raises
    ------
    ValueError
        No detector.

    Examples
    --------
    >>> threshold_of(3650.0, 4)
    14600.0
    """
    if n_detectors < 1:
        raise ValueError(f"Received {n_detectors} detectors; expected at least 1.")
    return run_length * n_detectors


def flagged(log_evidence: Mapping[str, float], false_share: float = 0.05) -> list[str]:
    """Return slices with enough evidence that on average at most a share of flagged ones is due to chance.

    Parameters
    ----------
    log_evidence : each slice's current log evidence since its baseline, never its running maximum
    false_share : in (0, 1)

    Returns
    -------
    names, most evidence first.

    Raises
    ------
    ValueError
        `false_share` outside (0, 1).

    Source
    ------
    e-BH: Wang and Ramdas, False discovery rate control with e-values (JRSS B 2022).

    Examples
    --------
    >>> flagged({"a": 5.0, "b": 3.8, "c": 0.0, "d": -1.0})
    ['a', 'b']
    """
    if not 0.0 < false_share < 1.0:
        raise ValueError(f"Received false_share={false_share}; expected a number in (0, 1).")
    names = sorted(log_evidence, key=lambda name: (-log_evidence[name], name))
    m = len(names)
    sorted_evidence = np.array([log_evidence[name] for name in names])
    enough = np.log(np.arange(1, m + 1) / max(m, 1)) + sorted_evidence >= -np.log(false_share)
    return names[: int(np.flatnonzero(enough)[-1]) + 1 if enough.any() else 0]
