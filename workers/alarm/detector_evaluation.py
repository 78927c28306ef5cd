"""Evaluation of a detector after one more cohort: the rule of change and the word of calibration, from the tables of its cohorts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibrant.drift.calibration import Judgement, judge, phi_of
from calibrant.drift.change import Change
from calibrant.drift.evaluation import effects_of, evaluate
from calibrant.drift.unit_tables import UnitTable, merged
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.cohort_history import CohortResult
from calibrant_server.workers.alarm.detectors import Detector, OpenChange
from calibrant_server.workers.alarm.reference import Before

Floats = NDArray[np.float64]


def advanced(
    detector: Detector,
    results: Sequence[CohortResult],
    settings: AlarmSettings,
    level: float,
    n_words: int = 1,
    before: Before = Before(),  # noqa: B008
) -> Detector:
    """Return a detector after one more cohort, the last of its results.

    Parameters
    ----------
    detector : open to the cohort, and of the present settings
    results : of its cohorts, in order, the new one included
    settings : of the alarm
    level : of this cohort's tests
    n_words : slices and classes that share the level of `off`
    before : the model's reference
    """
    cohort = results[-1]
    begun = detector.begun
    if begun is None and cohort.table.occupancy.sum() > 0:
        begun = cohort.cohort
    ahead = replace(
        detector,
        begun=begun,
        last=cohort.cohort,
        total=merged([detector.total, cohort.table]),
    )
    if not cohort.is_labelled:
        return ahead
    return _judged(_compared(ahead, results, level, before), results, settings, n_words)


def _compared(
    detector: Detector, results: Sequence[CohortResult], level: float, before: Before
) -> Detector:
    """Apply the rule of change to the cohorts since `begun`."""
    labelled = detector.compared(results, before)
    if not labelled:
        return detector
    effects = effects_of([each.table for each in labelled])
    found = evaluate(effects, level, before.block)
    ahead = replace(detector, p=found.p, leaning=found.leaning)
    if found.change is None or detector.change is not None:
        return ahead
    if not found.change.is_worse:
        return replace(ahead, improved_at=labelled[found.change.start].cohort)
    change = _opened(
        found.change, [each.cohort for each in labelled], found.leaning, before.block is not None
    )
    return replace(ahead, change=change, words=replace(ahead.words, was_good=True))


def _opened(found: Change, cohorts: Sequence[int], leaning: Floats, has_block: bool) -> OpenChange:
    return OpenChange(
        cohorts[-1],
        cohorts[found.start],
        cohorts[found.earliest],
        cohorts[found.latest],
        found.direction,
        int(np.sign(leaning[found.direction])),
        found.p,
        has_block and found.start == 0,
    )


def _judged(
    detector: Detector, results: Sequence[CohortResult], settings: AlarmSettings, n_words: int
) -> Detector:
    """Compare the recent cohorts with the tolerance."""
    recent = detector.recent(detector.counted(results))
    now = judgement_of(recent, settings.tolerance, n_words)
    return replace(
        detector, words=detector.words.turned(now, results[-1].cohort, settings.tolerance)
    )


def judgement_of(recent: Sequence[CohortResult], tolerance: float, n_words: int = 1) -> Judgement:
    """Return the word of calibration of some cohorts alone."""
    tables = [each.table for each in recent]
    if not tables:
        return judge(UnitTable.empty(), tolerance=tolerance)
    level = effects_of(tables).along(0)
    phi = phi_of(level.errors[..., 0], level.variance[..., 0])
    return judge(merged(tables), float(phi), tolerance, n_words)
