"""The verdict: status, evidence, effect and recommendation in one object for pages and notifications.

Only the sequential evidence raises an alarm. A large calibration error never does: its size by chance depends on the
number of units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibrant.core.actions import Advice
from calibrant.core.documents import Result
from calibrant.drift.comparison import shift_distances
from calibrant.drift.detector import DetectorState
from calibrant.drift.effect import bin_rows, effect, worst_bins
from calibrant.drift.recommendation import MIN_UNITS, recommended_action, reported
from calibrant.drift.score_shift import ScoreShiftState
from calibrant.drift.unit_tables import UnitTable, merged
from calibrant.drift.warnings import dispersion_of, is_doubtful, warnings_of

SHIFT_P = 0.05
LEANING = float(np.log(20.0))
ASSUMPTIONS = (
    "units are independent of each other, or calibrated given what came before",
    "each unit is in one cohort, with all its contributions",
    "labels of a sealed cohort are missing independently of the outcome given the score",
    "no record was sent twice under different ids",
    "raters judge as they did before",
    "outcomes are not altered by acting on the prediction",
)
_LN10 = float(np.log(10.0))
_MAX_LOG = 690.0


def verdict(
    state: DetectorState,
    threshold: float,
    run_length: float,
    since_baseline: UnitTable,
    since_change: UnitTable,
    *,
    later: UnitTable | None = None,
    shift: ScoreShiftState | None = None,
    coverage: Mapping[str, Any] | None = None,
    description: Mapping[str, Any] | None = None,
    recommendation: Mapping[str, Any] | None = None,
    alpha: float = 0.05,
) -> Result:
    """Return the complete verdict of a detector as JSON values.

    Parameters
    ----------
    state : DetectorState
    threshold : threshold of the Shiryaev–Roberts statistic; `run_length` times the number of detectors
    run_length : mean number of cohorts until a false alarm of any detector
    since_baseline : UnitTable of all cohorts that `state` processed
    since_change : UnitTable of the cohorts from the start of the change, to which an update is fitted
    later : UnitTable of later cohorts; the effect is computed from both together
    shift : the watch over the scores
    coverage : the caller's fields about labels (shares, lags, raters, duplicates), passed on
    description : estimates that describe and never alarm (debiased error with its null reference, scores),
        passed on
    recommendation : of an alarm, if the caller has more than the tables of one score
    alpha : probability that a confidence sequence ever misses, and one minus the coverage of the effect's intervals

    Returns
    -------
    dict; numbers without data are None. The effect of an alarm is `selected`: its start was chosen from the same data, so that
    its intervals are too narrow.
    """
    status, reason = _status(state, since_baseline, shift, threshold)
    changed = since_change if later is None else merged([since_change, later])
    return {
        "status": status,
        "reason": reason,
        "n_cohorts": state.n_cohorts,
        "last_cohort": state.last,
        "n_units": since_baseline.n_units,
        "n_effective": since_baseline.n_effective or None,
        **_evidence(state, threshold, run_length),
        "alarmed_at": state.alarmed_at,
        "acknowledged_at": state.acknowledged_at if state.alarmed_at is None else None,
        "start_of_change": state.start_of_change,
        "heaviest_bet": state.bets.describe(state.heaviest_bet) if state.n_cohorts else None,
        "tolerance": {
            "lower": state.tolerance.lower.tolist(),
            "upper": state.tolerance.upper.tolist(),
        },
        "effect": effect(changed, 1.0 - alpha)
        | {"worst_bins": worst_bins(changed), "selected": status == "alarm"},
        "bins": bin_rows(since_baseline, alpha),
        "score_shift": _shift(shift),
        "coverage": dict(coverage) if coverage else None,
        "description": dict(description) if description else None,
        "map_version": state.map_version,
        "assumptions": list(ASSUMPTIONS),
        "warnings": warnings_of(state, threshold),
        "dispersion": dispersion_of(state),
        "recommendation": dict(recommendation)
        if status == "alarm" and recommendation is not None
        else _action(status, state, since_change, later),
    }


def rater_or_model(verdicts: Mapping[str, Mapping[str, Any]]) -> Result:
    """Attribute an alarm to the model or to raters.

    When a model drifts, some rater's detector is the first to raise an alarm. The others must therefore not only raise no
    alarm: their labels must not tend in the same direction either.

    Parameters
    ----------
    verdicts : each rater's `status` by name, and whether their labels tend in the direction of the alarms (`leans`;
        default: False); omit raters with too few data

    Returns
    -------
    dict: `title` ("none", "rater shift", "model drift" or "undecided"), `raters` in alarm, `leaning` in that direction without
    alarm, `others`, `text`.

    Examples
    --------
    >>> rater_or_model({"ann": {"status": "alarm"}, "bob": {"status": "ok"}})["title"]
    'rater shift'
    >>> rater_or_model({"ann": {"status": "alarm"}, "bob": {"status": "ok", "leans": True}})["title"]
    'model drift'
    """
    judged = {
        name: each for name, each in verdicts.items() if each["status"] != "insufficient_data"
    }
    alarmed = sorted(name for name, each in judged.items() if each["status"] == "alarm")
    leaning = sorted(
        name for name, each in judged.items() if each.get("leans") and name not in alarmed
    )
    others = sorted(set(judged) - {*alarmed, *leaning})
    if not alarmed:
        title, text = "none", "No rater's labels raise an alarm."
    elif len(judged) < 2:
        title, text = (
            "undecided",
            "Only one rater has enough labels, so a change of the rater cannot be distinguished from one of the model.",
        )
    elif len(alarmed) + len(leaning) > len(others):
        title = "model drift"
        text = "Most raters' labels changed against the model, so the model or its cases changed."
    elif leaning:
        title = "undecided"
        text = "Some other raters' labels tend in the same direction, and some do not: wait for more labels, or ask all raters."
    else:
        title = "rater shift"
        text = (
            "These raters' labels changed against the model while others' did not: ask them first."
        )
    return {"title": title, "raters": alarmed, "leaning": leaning, "others": others, "text": text}


def tends_towards(state: DetectorState, alarmed: Sequence[DetectorState]) -> bool:
    """Return whether a detector's labels tend in the direction of others' alarms, by its own statistic of their bet.

    A single bet's statistic reaches 20 by chance occasionally, and the alarm's level with the model's drift.
    """
    return any(float(state.log_sr[each.heaviest_bet]) >= LEANING for each in alarmed)


def _status(
    state: DetectorState, table: UnitTable, shift: ScoreShiftState | None, threshold: float
) -> tuple[str, str]:
    if state.alarmed_at is not None:
        return "alarm", "calibration left the tolerance"
    if state.acknowledged_at is not None:
        return "alarm", "an alarm was acknowledged; monitoring for change restarted after it"
    if table.n_units < MIN_UNITS:
        return "insufficient_data", f"fewer than {MIN_UNITS} labelled units in sealed cohorts"
    if is_doubtful(state, threshold):
        codes = ", ".join(each["code"] for each in warnings_of(state, threshold))
        return "watch", f"only the plain statistic reaches the threshold ({codes})"
    if shift is not None and shift.anytime_p <= SHIFT_P:
        return (
            "watch",
            "the distribution of scores shifted; by the available labels, calibration is within tolerance",
        )
    return "ok", "by the available labels, calibration is within tolerance"


def _evidence(state: DetectorState, threshold: float, run_length: float) -> Result:
    log_sr = state.log_mixed_sr
    return {
        "evidence_log10": state.log_mixed_evidence / _LN10 if state.n_cohorts else None,
        "anytime_p": state.anytime_p if state.n_cohorts else None,
        "sr": float(np.exp(log_sr)) if log_sr < _MAX_LOG else None,
        "sr_log10": log_sr / _LN10 if np.isfinite(log_sr) else None,
        "plain_sr_log10": state.log_plain_sr / _LN10 if np.isfinite(state.log_plain_sr) else None,
        "threshold": threshold,
        "arl_target": run_length,
    }


def _shift(shift: ScoreShiftState | None) -> Result | None:
    if shift is None:
        return None
    return {
        "evidence_log10": shift.log_evidence / _LN10,
        "anytime_p": shift.anytime_p,
        "n_units": float(shift.counts.sum()),
        "n_reference": float(shift.reference.sum()),
        **shift_distances(shift.counts, shift.reference),
    }


def _action(
    status: str, state: DetectorState, since_change: UnitTable, later: UnitTable | None
) -> Advice:
    if status == "alarm":
        return recommended_action(since_change, later, state.tolerance)
    return reported("none" if status == "ok" else "collect_more")
