"""Warnings: assumptions of the evidence that the data contradict. A warning is never an alarm.

The plain statistic takes every unit as independent and every label as known. If it alone reaches the threshold, an assumption may
be the cause instead of the calibration: the status is then `watch`.
"""

from __future__ import annotations

import numpy as np

from calibrant.core.documents import Result
from calibrant.drift.detector import DetectorState
from calibrant.drift.dispersion import RUN_IN, SETTLED

TEXTS = {
    "over_dispersed": "outcomes of a cohort vary together more than chance allows; the evidence is tempered by the variation of "
    "earlier cohorts, which is approximate and delays the alarm",
    "cohorts_correlated": "neighbouring cohorts are correlated, or this cannot be excluded yet; an alarm needs more evidence than such "
    "cohorts would show without a change: use a longer bucket",
    "labels_pending": "some labels had not arrived when cohorts were sealed; if these count at their least favourable value, there is no "
    "evidence of a change: use a longer label_horizon, or wait until later labels show that at least 98 % of each class are known at sealing",
    "run_in": f"the first {RUN_IN} cohorts count as one unit each, because the variation between cohorts is not known yet, and changes in "
    f"the first {SETTLED} have to be clearer",
}


def warnings_of(state: DetectorState, threshold: float) -> list[dict[str, str]]:
    """Return the warnings of a detector, each with `code` and `detail`."""
    dispersion, doubtful = state.dispersion, is_doubtful(state, threshold)
    n = float(dispersion.n_cohorts)
    is_tempered = doubtful and state.n_tempered > 0 and n > RUN_IN
    is_withheld = doubtful and n >= SETTLED and state.log_uncautious_sr >= float(np.log(threshold))
    found = {
        "over_dispersed": bool(dispersion.is_over) or is_tempered,
        "cohorts_correlated": is_withheld
        or bool(dispersion.is_correlated and (dispersion.is_over or doubtful)),
        "labels_pending": doubtful and state.n_pending > 0,
        "run_in": n < RUN_IN or (doubtful and n < SETTLED),
    }
    details = TEXTS | {"run_in": f"{TEXTS['run_in']}; {_left(state)} more to come"}
    return [{"code": code, "detail": details[code]} for code, holds in found.items() if holds]


def _left(state: DetectorState) -> int:
    """Return how many cohorts of the run-in are still to come."""
    return max(0, RUN_IN - int(state.dispersion.n_cohorts))


def is_doubtful(state: DetectorState, threshold: float) -> bool:
    """Return whether only the plain statistic reaches the threshold."""
    return state.alarmed_at is None and state.log_plain_sr >= float(np.log(threshold))


def dispersion_of(state: DetectorState) -> Result:
    """Return what is known of the variation between cohorts; `run_in` is the number of cohorts until the run-in ends."""
    dispersion = state.dispersion
    n = int(dispersion.n_cohorts)
    return {
        "phi": float(dispersion.estimate) if n > 1 else None,
        "n_cohorts": n,
        "n_tempered": state.n_tempered,
        "n_pending": state.n_pending,
        "evidence": "exact" if n <= RUN_IN else "approximate",
        "run_in": _left(state),
        "caution": float(state.caution[state.heaviest_bet]) if state.n_cohorts else None,
    }
