"""Warnings: assumptions of the evidence that the data contradict. A warning is never an alarm.

The plain statistic takes every unit as independent and every label as known. If it alone reaches the threshold, an assumption may
be the cause instead of the calibration: the status is then `watch`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant.drift.detector import DetectorState
from calibrant.drift.dispersion import RUN_IN

TEXTS = {
    "over_dispersed": "outcomes of whole cohorts move together more than chance allows; the evidence is tempered by what earlier "
    "cohorts showed, which is approximate and finds changes later",
    "cohorts_correlated": "neighbouring cohorts move together; tempering is not enough, so that no alarm is raised: use a longer bucket",
    "labels_pending": "labels had not arrived when cohorts were sealed; counted at their least favourable value they are no evidence of a "
    "change: use a longer label_horizon, or wait until later labels show that at least 98 % of each class are known at sealing",
    "run_in": f"the first {RUN_IN} cohorts count as one unit each, because the variation between cohorts is not known yet",
}


def warnings_of(state: DetectorState, threshold: float) -> list[dict[str, str]]:
    """Return the warnings of a detector, each with `code` and `detail`."""
    dispersion, doubtful = state.dispersion, is_doubtful(state, threshold)
    is_early = float(dispersion.n_cohorts) <= RUN_IN
    is_tempered = doubtful and state.n_tempered > 0 and not is_early
    found = {
        "over_dispersed": bool(dispersion.is_over) or is_tempered,
        "cohorts_correlated": bool(dispersion.is_correlated and (dispersion.is_over or doubtful)),
        "labels_pending": doubtful and state.n_pending > 0,
        "run_in": doubtful and is_early,
    }
    return [{"code": code, "detail": TEXTS[code]} for code, holds in found.items() if holds]


def is_doubtful(state: DetectorState, threshold: float) -> bool:
    """Return whether only the plain statistic reaches the threshold."""
    return state.alarmed_at is None and state.log_plain_sr >= float(np.log(threshold))


def dispersion_of(state: DetectorState) -> dict[str, Any]:
    """Return what is known of the variation between cohorts."""
    dispersion = state.dispersion
    n = int(dispersion.n_cohorts)
    return {
        "phi": float(dispersion.estimate) if n > 1 else None,
        "n_cohorts": n,
        "n_tempered": state.n_tempered,
        "n_pending": state.n_pending,
        "evidence": "exact" if n <= RUN_IN else "approximate",
    }
