"""Detectors of a model: one a slice and scope, advanced by each sealed cohort in the commit that seals it.

A detector is named `scope|slice`. Cohorts are numbered by their start in seconds, which keeps their order whatever
the length of a cohort, and the last one seen is a watermark: a cohort that comes again changes nothing. A cohort
without labelled units of a slice is no look at it: its detector stands still.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.drift.detector import DetectorState, advance, fresh, pack_state, unpack_state
from calibrant.drift.occupancy import (
    LEAST_REFERENCE,
    OccupancyState,
    pack_watch,
    see,
    unpack_watch,
    watch,
)
from calibrant.drift.slices import flagged
from calibrant.drift.tables import DRIFT_BINS, UnitTable, label_counts, merged, unit_table
from calibrant.drift.tolerance import Tolerance
from calibrant.packing import PackingError, pack, unpack
from calibrant.pane import Pane
from workers.alarm.classes import class_table
from workers.alarm.settings import AGAINST_REFERENCE, OWN_SCORE, AlarmSettings
from workers.state.registry import ModelConfig

Ints = NDArray[np.int64]
FORMAT = 1
# A model's slices beyond these are not watched, and the verdict says so: each costs all others some sensitivity.
MOST_DETECTORS = 256
KEPT_COHORTS = 400
KEPT_COHORTS_OF_SLICE = 100
_LOST_AT_ONCE = 2000
_MOST_BYTES = 1 << 19
_LOOK = struct.Struct("<Bdddd")
LOOK_FORMAT = 1


@dataclass(frozen=True)
class Detector:
    """What is held of one detector.

    Attributes
    ----------
    made_of : name of the settings that its evidence rests on
    begun : first cohort since the baseline, None before it
    state : None while the reference is gathered that it needs
    baseline : all cohorts since the baseline
    coverage : int64 (2, n_bins), their predictions and labelled predictions
    reference : the first cohorts, for comparison
    watch : over the scores, None until there is a reference
    total : all cohorts ever, for counters that only grow
    last : the last cohort seen or closed
    episode : the alarm that is not closed yet
    map_version : calibration map in force
    """

    made_of: str
    begun: int | None = None
    state: DetectorState | None = None
    baseline: UnitTable = field(default_factory=UnitTable.empty)
    coverage: Ints = field(default_factory=lambda: np.zeros((2, DRIFT_BINS), np.int64))
    reference: UnitTable = field(default_factory=UnitTable.empty)
    watch: OccupancyState | None = None
    total: UnitTable = field(default_factory=UnitTable.empty)
    last: int | None = None
    episode: str | None = None
    map_version: str | None = None

    @classmethod
    def begin(
        cls, settings: AlarmSettings, map_version: str | None = None, last: int | None = None
    ) -> Detector:
        """A detector that has seen nothing; cohorts up to `last` are closed to it."""
        state = None
        if settings.against != AGAINST_REFERENCE:
            state = fresh(Tolerance.within(settings.tolerance), map_version, last)
        return cls(settings.made_of, state=state, last=last, map_version=map_version)

    @property
    def log_evidence(self) -> float:
        """Log evidence since the baseline, 0 where there is none."""
        return 0.0 if self.state is None else self.state.log_mixed_evidence

    def pack(self) -> bytes:
        """As kept."""
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
        }
        return pack(arrays, about)

    @classmethod
    def unpack(cls, data: bytes) -> Detector:
        """Read what `pack` wrote; raises PackingError."""
        arrays, about = unpack(data, largest=_MOST_BYTES)
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
        )


@dataclass(frozen=True)
class Look:
    """What one cohort said to one detector: the history, and the tables that effects are computed from.

    Attributes
    ----------
    cohort : its start in seconds
    log_evidence, log_sr : after the cohort; nan where no detector ran yet
    log_threshold : at the cohort
    table : UnitTable, to the nearest float32
    coverage : int64 (2, n_bins)
    """

    cohort: int
    log_evidence: float
    log_sr: float
    log_threshold: float
    table: UnitTable
    coverage: Ints

    def pack(self) -> bytes:
        """As kept."""
        head = _LOOK.pack(LOOK_FORMAT, self.log_evidence, self.log_sr, self.log_threshold, 0.0)
        sums = self.table.columns.astype("<f4").tobytes()
        return head + zlib.compress(sums + self.coverage.astype("<u4").tobytes(), 1)

    @classmethod
    def unpack(cls, cohort: int, data: bytes) -> Look:
        """Read what `pack` wrote; raises PackingError."""
        number, evidence, sr, threshold, _ = _LOOK.unpack_from(data)
        if number != LOOK_FORMAT:
            raise PackingError(f"a look of format {number} is not one that this version reads")
        body = zlib.decompress(data[_LOOK.size :])
        sums = np.frombuffer(body, "<f4", 5 * DRIFT_BINS).reshape(5, -1).astype(np.float64)
        counts = np.frombuffer(body, "<u4", 2 * DRIFT_BINS, sums.size * 4).reshape(2, -1)
        return cls(cohort, evidence, sr, threshold, UnitTable(*sums), counts.astype(np.int64))


@dataclass(frozen=True)
class Cohort:
    """A sealed cohort of one detector."""

    start_s: int
    table: UnitTable
    coverage: Ints


@dataclass(frozen=True)
class Gathered:
    """What is sealed of a cohort that is longer than a pane and not sealed to its end.

    Attributes
    ----------
    start_s, end_s : of the cohort
    cohorts : by detector, so far
    """

    start_s: int
    end_s: int
    cohorts: dict[str, Cohort]

    def joined(self, more: Mapping[str, Cohort]) -> Gathered:
        """With one more pane's."""
        cohorts = dict(self.cohorts)
        for name, each in more.items():
            held = cohorts.get(name)
            table = each.table if held is None else merged([held.table, each.table])
            coverage = each.coverage if held is None else held.coverage + each.coverage
            cohorts[name] = Cohort(self.start_s, table, coverage)
        return Gathered(self.start_s, self.end_s, cohorts)

    def pack(self) -> bytes:
        """As kept."""
        arrays: dict[str, Any] = {}
        for number, each in enumerate(self.cohorts.values()):
            arrays[f"{number}.table"] = each.table.columns
            arrays[f"{number}.coverage"] = each.coverage
        about = {"gathered": FORMAT, "start": self.start_s, "end": self.end_s, "names": list(self.cohorts)}
        return pack(arrays, about)

    @classmethod
    def unpack(cls, data: bytes) -> Gathered:
        """Read what `pack` wrote; raises PackingError."""
        arrays, about = unpack(data, largest=_MOST_BYTES * 4)
        if about.get("gathered") != FORMAT:
            raise PackingError(f"this is not a cohort being gathered in format {FORMAT}")
        cohorts = {
            name: Cohort(about["start"], UnitTable(*arrays[f"{i}.table"]), arrays[f"{i}.coverage"])
            for i, name in enumerate(about["names"])
        }
        return cls(about["start"], about["end"], cohorts)


def detector_name(scope: str, slice_: str) -> str:
    """The name of a detector of a model."""
    return f"{scope}|{slice_}"


def parts_of(name: str) -> tuple[str, str]:
    """Scope and slice of a detector."""
    scope, _, slice_ = name.partition("|")
    return scope, slice_


def kept_cohorts(name: str) -> int:
    """How many looks of a detector are kept."""
    return KEPT_COHORTS if name.endswith("|") else KEPT_COHORTS_OF_SLICE


def tables_of(
    settings: AlarmSettings, start_s: int, panes: Mapping[str, Pane]
) -> dict[str, Cohort]:
    """The cohort of every detector from the panes of its slice; scopes that a pane does not carry are left out."""
    found: dict[str, Cohort] = {}
    for slice_ in sorted(panes):
        pane = panes[slice_]
        for scope in settings.scopes:
            table, coverage = _table_of(pane, scope, settings.raters)
            if table is not None:
                found[detector_name(scope, slice_)] = Cohort(start_s, table, coverage)
    return found


def _table_of(pane: Pane, scope: str, raters: str) -> tuple[UnitTable | None, Ints]:
    coverage = label_counts(pane)
    if scope == OWN_SCORE:
        return unit_table(pane, raters), coverage
    return class_table(pane, int(scope.partition(":")[2]), raters), coverage


def watched(held: Mapping[str, Detector], cohorts: Iterable[str]) -> list[str]:
    """The detectors of a model: those there are, then new ones as far as there is room, all rows first."""
    new = sorted((name for name in cohorts if name not in held), key=lambda name: (parts_of(name)[1], name))
    return [*held, *new[: max(0, MOST_DETECTORS - len(held))]]


def advanced(detector: Detector, cohort: Cohort, settings: AlarmSettings, threshold: float) -> Detector:
    """A detector after one more cohort; one at or below its last changes nothing."""
    if detector.last is not None and cohort.start_s <= detector.last:
        return detector
    if detector.made_of != settings.made_of:
        detector = replace(
            Detector.begin(settings, detector.map_version, detector.last), total=detector.total
        )
    table = cohort.table
    begun = detector.begun
    if begun is None and table.occupancy.sum() > 0:
        begun = cohort.start_s
    ahead = replace(detector, begun=begun, last=cohort.start_s, coverage=detector.coverage + cohort.coverage)
    is_reference = begun is None or cohort.start_s < begun + settings.reference_s
    ahead = _over_scores(ahead, cohort, is_reference)
    if settings.against == AGAINST_REFERENCE:
        if is_reference:
            return replace(ahead, total=merged([ahead.total, table]))
        ahead = _against_reference(ahead, settings)
    state = ahead.state
    if state is not None and table.n_units > 0:
        state = advance(state, cohort.start_s, table, threshold)
    elif state is not None:
        state = replace(state, last=cohort.start_s)
    return replace(
        ahead,
        state=state,
        baseline=merged([ahead.baseline, table]),
        total=merged([ahead.total, table]),
    )


def _over_scores(detector: Detector, cohort: Cohort, is_reference: bool) -> Detector:
    """The reference grows, or the watch sees the cohort's scores."""
    if detector.watch is not None:
        return replace(detector, watch=see(detector.watch, cohort.start_s, cohort.table.occupancy))
    reference = detector.reference
    if is_reference or reference.occupancy.sum() < LEAST_REFERENCE:
        return replace(detector, reference=merged([reference, cohort.table]))
    begun = watch(reference.occupancy)
    return replace(detector, watch=see(begun, cohort.start_s, cohort.table.occupancy))


def _against_reference(detector: Detector, settings: AlarmSettings) -> Detector:
    if detector.state is not None:
        return detector
    band = Tolerance.of_reference(detector.reference, settings.tolerance)
    return replace(detector, state=fresh(band, detector.map_version))


def look_of(detector: Detector, cohort: Cohort, threshold: float) -> Look:
    """What a cohort said to a detector that has just seen it."""
    state = detector.state
    seen = state is not None and state.n_cohorts > 0
    return Look(
        cohort.start_s,
        state.log_mixed_evidence if state is not None and seen else float("nan"),
        state.log_mixed_sr if state is not None and seen else float("nan"),
        float(np.log(threshold)),
        cohort.table,
        cohort.coverage,
    )


def lost_looks(name: str, last: int | None, cohort: int, bucket_s: int) -> list[int]:
    """Cohorts whose looks are dropped when `cohort` comes after `last`."""
    reach = kept_cohorts(name) * bucket_s
    if last is None:
        return []
    first = max(last - reach + bucket_s, cohort - reach - (_LOST_AT_ONCE - 1) * bucket_s)
    return list(range(first, cohort - reach + bucket_s, bucket_s))


def flagged_names(held: Mapping[str, Detector], settings: AlarmSettings) -> list[str]:
    """Slices with evidence enough that at most a share of those flagged are so by chance."""
    evidence = {
        name: each.log_evidence
        for name, each in held.items()
        if each.state is not None and parts_of(name)[1]
    }
    return flagged(evidence, settings.false_flags) if evidence else []


def promoted(detector: Detector, settings: AlarmSettings, map_version: str | None) -> Detector:
    """A detector from a new calibration map on: nothing seen, what was seen stays closed."""
    return replace(Detector.begin(settings, map_version, detector.last), total=detector.total)


def known(config: ModelConfig) -> bool:
    """Whether a model has an alarm at all: cohorts are sealed."""
    return config.label_horizon_s is not None
