"""The verdict of the sequential alarm, with the current part of a window compared with its earlier part."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import ClassVar

from calibrant.core.documents import Result
from calibrant.core.pane import Pane
from calibrant.drift.comparison import compare as compare_sides
from calibrant.drift.recommendation import reported
from calibrant_server.workers.alarm.alarm_snapshot import AlarmSnapshot
from calibrant_server.workers.alarm.cohorts import parts_of, rater_in
from calibrant_server.workers.alarm.detectors import n_requested
from calibrant_server.workers.alarm.drift_report import (
    closed_by_map,
    interval_of,
    others_of,
    report_of,
    skipped_cohorts,
)
from calibrant_server.workers.alarm.settings import AlarmSettings
from calibrant_server.workers.queries import change_advice
from calibrant_server.workers.queries.kind import (
    Against,
    Inputs,
    ResultKind,
    reject_other_classes,
    side_name,
)
from calibrant_server.workers.queries.query import DetectorQuery, Needs
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import DAY_S
from calibrant_server.workers.store.windows import DatedPane, rfc3339

CURRENT_S = 7 * DAY_S
_ALIKE = "data that both sides share are treated as independent, so intervals of a change are too wide for them"


class DriftQuery(DetectorQuery):
    """Which detector."""

    kind: ClassVar[str] = "drift"
    needs: ClassVar[Needs] = Needs(
        panes="sides",
        last_s=CURRENT_S,
        alarm=True,
        sealed=("counts", "delays", "unit_sample", "units"),
        changed=change_advice.NEEDS,
    )


def accumulators(query: DriftQuery) -> Iterable[str]:
    """Counts, unit-weighted sums, and plain histograms, which are left out and counted."""
    return ("counts", "histograms", "units")


def compute(query: DriftQuery, inputs: Inputs) -> Result:
    """The verdict of the slice's detector, with the last days of the window compared with the rest."""
    return _verdict(inputs, None)


def compare(query: DriftQuery, inputs: Inputs, other: Inputs, against: Against) -> Result:
    """The same, compared with the other side: all of it, or of another model the same days."""
    reject_other_classes(inputs.config, other.config)
    others = other.panes
    if against.by == "model":
        cut = start_of_current(inputs.panes)
        others = [each for each in others if each.start_s >= cut]
    found = _verdict(inputs, others)
    compared = found["comparison"]
    assert isinstance(compared, dict)
    if against.by == "model":
        compared["assumptions"] = [*compared["assumptions"], _ALIKE]
    if against.by == "baseline":
        # A baseline is one pane without a time.
        compared["reference"]["window"] = None
    return found | {"against": side_name(against, other)}


def _verdict(inputs: Inputs, against: list[DatedPane] | None) -> Result:
    """Return the status of the comparison if there is no detector: at most a watch, and insufficient data instead of ok
    if the model has an alarm."""
    config, alarm = inputs.config, inputs.alarm
    comparison = _comparison(inputs.panes, config, against)
    settings = AlarmSettings.of(config)
    detector = alarm.detector
    why_not = _why_not(config, alarm, settings)
    if why_not is not None or detector is None:
        status, reason = comparison["status"], comparison["reason"]
        if status == "ok" and config.label_horizon_s is not None:
            # Equal windows do not replace an alarm without a verdict: both windows may be miscalibrated.
            status, reason = "insufficient_data", why_not
        return {
            "status": status,
            "reason": reason,
            "evidence_log10": None,
            "sr": None,
            "threshold": None,
            "arl_target": None,
            "recommendation": reported("none" if status == "ok" else "collect_more"),
            "assumptions": comparison["assumptions"],
            "detector": None,
            "detector_reason": why_not,
            "cohorts_passed_over": None if detector is None else skipped_cohorts(detector),
            "comparison": comparison,
        }
    advice = change_advice.change_advice(inputs)
    found = report_of(detector, settings, alarm, inputs.seed, advice)
    head = {
        "detector": {
            "scope": parts_of(alarm.name)[0],
            "slice": parts_of(alarm.name)[1] or None,
            "raters": settings.raters,
            "scores": settings.scores,
            "against": settings.against,
            "bucket": settings.bucket,
            "label_horizon_s": config.label_horizon_s,
            "n_detectors": n_requested(alarm.detectors, settings),
            "last_cohort": interval_of(detector.last, settings),
            "alarm": detector.episode,
        },
        "detector_reason": None,
    }
    is_of_all_rows = not parts_of(alarm.name)[1] and rater_in(alarm.name) is None
    slices = {"slices": others_of(alarm, settings)} if is_of_all_rows else {}
    return found | head | slices | {"comparison": comparison}


def _why_not(config: ModelConfig, alarm: AlarmSnapshot, settings: AlarmSettings) -> str | None:
    """Return why there is no verdict of a detector, None if there is one."""
    detector = alarm.detector
    if config.label_horizon_s is None:
        return "the model has no label_horizon. Declare the time after which labels are complete"
    if detector is None:
        or_else = ", or this slice is not watched" if parts_of(alarm.name)[1] else ""
        return f"no cohort has been sealed yet{or_else}{closed_by_map(alarm, settings)}"
    if detector.made_of != settings.made_of:
        return "the settings of the alarm changed: it restarts with the next cohort"
    if detector.state is None:
        return f"the reference is being collected: the first {settings.reference} of cohorts"
    return None


def _comparison(
    panes: list[DatedPane], config: ModelConfig, against: list[DatedPane] | None
) -> Result:
    """Compare the last days of the window with the rest of it, or with another side."""
    cut = start_of_current(panes)
    sides = {
        True: [each for each in panes if each.start_s >= cut],
        False: [each for each in panes if each.start_s < cut] if against is None else against,
    }
    current, reference = (_merged(sides[side], config) for side in (True, False))
    found = compare_sides(current, reference, "mean", ci=0.95)
    found["current"]["window"] = _window(sides[True])
    found["reference"]["window"] = _window(sides[False])
    found["n_excluded"] = _in_histograms(current) + _in_histograms(reference)
    for name in ("detector", "detector_reason"):
        found.pop(name, None)
    return found


def start_of_current(panes: list[DatedPane]) -> int:
    """Return the start of the last days of a window, in seconds."""
    return max((each.start_s + each.length_s for each in panes), default=0) - CURRENT_S


def _merged(panes: list[DatedPane], config: ModelConfig) -> Pane:
    merged = Pane(config.spec())
    for each in panes:
        merged.merge(each.pane)
    return merged


def _window(panes: list[DatedPane]) -> dict[str, str] | None:
    """Return the interval from first to last pane of a side; None if it has none."""
    if not panes:
        return None
    ends = (
        min(each.start_s for each in panes),
        max(each.start_s + each.length_s for each in panes),
    )
    return dict(
        zip(("from", "to"), (rfc3339(datetime.fromtimestamp(s, UTC)) for s in ends), strict=True)
    )


def _in_histograms(pane: Pane) -> float:
    """Return the weight received as plain histograms, which carry no units and are excluded from the comparison."""
    found = pane.histograms
    return max((found.weight(key) for key in found.blocks), default=0.0)


KIND = ResultKind(DriftQuery, compute, accumulators, compare)
