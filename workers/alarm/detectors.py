"""Detectors of a model: one per slice and scope, advanced by each sealed cohort in the commit that seals it.

Cohorts are numbered by their start in seconds, which keeps their order for any length of a cohort. The last processed
cohort is a watermark: a repeated cohort changes nothing. A cohort without labelled units of a slice is not an evaluation
of that slice: its detector is paused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.packing import PackingError, pack, unpack
from calibrant.drift.detector import DetectorState, advance, fresh
from calibrant.drift.multiple_testing import flagged
from calibrant.drift.packed_state import pack_state, unpack_state
from calibrant.drift.score_shift import (
    MIN_REFERENCE,
    ScoreShiftState,
    advance_watch,
    begin_watch,
    pack_watch,
    unpack_watch,
)
from calibrant.drift.tolerance import Tolerance
from calibrant.drift.unit_tables import DRIFT_BINS, UnitTable, merged
from calibrant_server.workers.alarm.active_map import NO_MAP, ActiveMap
from calibrant_server.workers.alarm.cohorts import DetectorCohort, parts_of, rater_in
from calibrant_server.workers.alarm.label_run_in import LabelRunIn
from calibrant_server.workers.alarm.settings import AGAINST_REFERENCE, AlarmSettings
from calibrant_server.workers.store.model_config import ModelConfig

Ints = NDArray[np.int64]
FORMAT = 1
# Further slices of a model are not watched, and the verdict reports it: each reduces the sensitivity of all others.
MAX_DETECTORS = 256
_MAX_BYTES = 1 << 19


@dataclass(frozen=True)
class Detector:
    """Stored state of one detector.

    Attributes
    ----------
    made_of : name of the settings that its evidence depends on
    begun : first cohort since the baseline, None before it
    state : None while its reference is being collected
    baseline : all cohorts since the baseline
    coverage : int64 (2, n_bins), their predictions and labelled predictions
    reference : the first cohorts, for comparison
    watch : over the scores, None until there is a reference
    total : all cohorts ever, for counters that only increase
    last : the last processed or closed cohort
    episode : the open alarm
    map_version : the active calibration map
    label_run_in : labels at sealing and later; of the first scope of all rows only
    units, n_left_out : what is known of the units of the last cohort, and how many returning units were left out; as `label_run_in`
    n_passed, why_passed : number of cohorts skipped since the baseline, and the reason for the last
    """

    made_of: str
    begun: int | None = None
    state: DetectorState | None = None
    baseline: UnitTable = field(default_factory=UnitTable.empty)
    coverage: Ints = field(default_factory=lambda: np.zeros((2, DRIFT_BINS), np.int64))
    reference: UnitTable = field(default_factory=UnitTable.empty)
    watch: ScoreShiftState | None = None
    total: UnitTable = field(default_factory=UnitTable.empty)
    last: int | None = None
    episode: str | None = None
    map_version: str | None = None
    n_passed: int = 0
    why_passed: str | None = None
    label_run_in: LabelRunIn = field(default_factory=LabelRunIn)
    units: str | None = None
    n_left_out: int = 0

    @classmethod
    def begin(
        cls, settings: AlarmSettings, active_map: ActiveMap = NO_MAP, last: int | None = None
    ) -> Detector:
        """Create a detector without evidence; cohorts up to `last`, and those the map was fitted to, are closed to it."""
        if settings.is_mapped:
            last = active_map.closed_to(settings.bucket_s, last)
        version, state = active_map.version if settings.is_mapped else None, None
        if settings.against != AGAINST_REFERENCE:
            state = fresh(Tolerance.within(settings.tolerance), version, last)
        return cls(settings.made_of, state=state, last=last, map_version=version)

    def is_open(self, start_s: int) -> bool:
        """Whether a cohort is at or before the last processed or closed one."""
        return self.last is None or start_s > self.last

    @property
    def evidence(self) -> DetectorState | None:
        """The state once a cohort has been processed; None before."""
        return self.state if self.state is not None and self.state.n_cohorts > 0 else None

    @property
    def in_alarm(self) -> bool:
        """Whether its alarm is raised and not acknowledged."""
        return self.state is not None and self.state.alarmed_at is not None

    @property
    def log_evidence(self) -> float:
        """Log evidence since the baseline, 0 if there is none."""
        return 0.0 if self.state is None else self.state.log_mixed_evidence

    def pack(self) -> bytes:
        """Return the stored form."""
        arrays: dict[str, Any] = {
            "baseline": self.baseline.columns,
            "reference": self.reference.columns,
            "total": self.total.columns,
            "coverage": self.coverage,
        }
        if self.state is not None:
            arrays["state"] = np.frombuffer(pack_state(self.state), np.uint8)
        if self.watch is not None:
            arrays["watch"] = np.frombuffer(pack_watch(self.watch), np.uint8)
        about = {
            "alarm": FORMAT,
            "made_of": self.made_of,
            "begun": self.begun,
            "last": self.last,
            "episode": self.episode,
            "map_version": self.map_version,
            "n_passed": self.n_passed,
            "why_passed": self.why_passed,
            "units": self.units,
            "n_left_out": self.n_left_out,
            "label_run_in": self.label_run_in.to_dict(),
        }
        return pack(arrays, about)

    @classmethod
    def unpack(cls, data: bytes) -> Detector:
        """Read what `pack` wrote; raises PackingError."""
        arrays, about = unpack(data, largest=_MAX_BYTES)
        if about.get("alarm") != FORMAT:
            raise PackingError(f"this is not a model's detector in format {FORMAT}")
        state, watching = arrays.get("state"), arrays.get("watch")
        return cls(
            made_of=about["made_of"],
            begun=about["begun"],
            state=None if state is None else unpack_state(state.tobytes()),
            baseline=UnitTable(*arrays["baseline"]),
            coverage=arrays["coverage"],
            reference=UnitTable(*arrays["reference"]),
            watch=None if watching is None else unpack_watch(watching.tobytes()),
            total=UnitTable(*arrays["total"]),
            last=about["last"],
            episode=about["episode"],
            map_version=about["map_version"],
            n_passed=about.get("n_passed", 0),
            why_passed=about.get("why_passed"),
            units=about.get("units"),
            n_left_out=int(about.get("n_left_out", 0)),
            label_run_in=LabelRunIn.of(about.get("label_run_in")),
        )


def watched(
    detectors: Mapping[str, Detector], cohorts: Iterable[str], settings: AlarmSettings
) -> list[str]:
    """Return the detectors of a model: existing ones, then new ones up to the limit, all rows first.

    Detectors of classes and raters that the settings no longer name are excluded.
    """
    still = requested(detectors, settings)
    new = sorted(
        (name for name in cohorts if name not in detectors),
        key=lambda name: (parts_of(name)[1], name),
    )
    return [*still, *new[: max(0, MAX_DETECTORS - len(still))]]


def requested(detectors: Iterable[str], settings: AlarmSettings) -> list[str]:
    """Return the detectors that the settings still name, by scope and by number of raters."""
    names = list(detectors)
    raters = sorted(name for name in names if rater_in(name) is not None)[
        : settings.rater_detectors
    ]
    return [name for name in names if name in raters or parts_of(name)[0] in settings.scopes]


def n_requested(detectors: Iterable[str], settings: AlarmSettings) -> int:
    """Return how many detectors share the false-alarm rate, at least one."""
    return max(1, len(requested(detectors, settings)))


def watched_raters(
    detectors: Mapping[str, Detector], raters: Iterable[str], settings: AlarmSettings
) -> list[str]:
    """Return raters with their own detector: those that have one, then others by name up to the limit."""
    known = sorted(rater for name in detectors if (rater := rater_in(name)) is not None)
    new = sorted(set(raters) - set(known))
    return [*known, *new][: settings.rater_detectors]


def skipped(detector: Detector, start_s: int, why: str) -> Detector:
    """Return a detector after a skipped cohort; one at or below its last changes nothing."""
    if not detector.is_open(start_s):
        return detector
    state = detector.state
    return replace(
        detector,
        last=start_s,
        state=None if state is None else replace(state, last=start_s),
        n_passed=detector.n_passed + 1,
        why_passed=why,
    )


def advanced(
    detector: Detector,
    cohort: DetectorCohort,
    settings: AlarmSettings,
    threshold: float,
    active_map: ActiveMap = NO_MAP,
) -> Detector:
    """Return a detector after one more cohort; one at or below its last changes nothing."""
    if not detector.is_open(cohort.start_s):
        return detector
    detector = renewed(detector, settings, active_map)
    if not detector.is_open(cohort.start_s):
        return detector
    table = cohort.table
    begun = detector.begun
    if begun is None and table.occupancy.sum() > 0:
        begun = cohort.start_s
    ahead = replace(
        detector, begun=begun, last=cohort.start_s, coverage=detector.coverage + cohort.coverage
    )
    is_reference = begun is None or cohort.start_s < begun + settings.reference_s
    ahead = _over_scores(ahead, cohort, is_reference)
    if settings.against == AGAINST_REFERENCE:
        if is_reference:
            return replace(ahead, total=merged([ahead.total, table]))
        ahead = _against_reference(ahead, settings)
    state = ahead.state
    if state is not None and table.n_units > 0:
        state = advance(state, cohort.start_s, table, threshold, cohort.slack, cohort.pending)
    elif state is not None:
        state = replace(state, last=cohort.start_s)
    return replace(
        ahead,
        state=state,
        baseline=merged([ahead.baseline, table]),
        total=merged([ahead.total, table]),
    )


def renewed(
    detector: Detector, settings: AlarmSettings, active_map: ActiveMap = NO_MAP
) -> Detector:
    """Return the detector, or a reset one if its evidence depends on other settings."""
    return (
        detector
        if detector.made_of == settings.made_of
        else promoted(detector, settings, active_map)
    )


def _over_scores(detector: Detector, cohort: DetectorCohort, is_reference: bool) -> Detector:
    """Extend the reference, or pass the cohort's scores to the watch."""
    if detector.watch is not None:
        return replace(
            detector, watch=advance_watch(detector.watch, cohort.start_s, cohort.table.occupancy)
        )
    reference = detector.reference
    if is_reference or reference.occupancy.sum() < MIN_REFERENCE:
        return replace(detector, reference=merged([reference, cohort.table]))
    begun = begin_watch(reference.occupancy)
    return replace(detector, watch=advance_watch(begun, cohort.start_s, cohort.table.occupancy))


def _against_reference(detector: Detector, settings: AlarmSettings) -> Detector:
    if detector.state is not None:
        return detector
    band = Tolerance.of_reference(detector.reference, settings.tolerance)
    return replace(detector, state=fresh(band, detector.map_version))


def flagged_names(detectors: Mapping[str, Detector], settings: AlarmSettings) -> list[str]:
    """Return slices with enough evidence that at most the given share of flagged ones is due to chance."""
    evidence = {
        name: detectors[name].log_evidence
        for name in requested(detectors, settings)
        if detectors[name].state is not None and parts_of(name)[1]
    }
    return flagged(evidence, settings.false_flags) if evidence else []


def promoted(detector: Detector, settings: AlarmSettings, active_map: ActiveMap) -> Detector:
    """Return a reset detector; processed cohorts stay closed."""
    begun = replace(
        Detector.begin(settings, active_map, detector.last),
        total=detector.total,
        label_run_in=detector.label_run_in,
    )
    if detector.state is None or begun.state is None or detector.made_of != begun.made_of:
        return begun
    # Days differ as much under another map.
    return replace(begun, state=replace(begun.state, dispersion=detector.state.dispersion))


def known(config: ModelConfig) -> bool:
    """Whether a model has an alarm: its cohorts are sealed."""
    return config.label_horizon_s is not None
