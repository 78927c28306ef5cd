"""Results of each cohort for each detector, stored for the history and for effects since a change."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.core.packing import PackingError
from calibrant.core.routing import ALL_ROWS
from calibrant.drift.unit_tables import DRIFT_BINS, UnitTable
from calibrant_server.workers.alarm.cohorts import DetectorCohort, parts_of, rater_in
from calibrant_server.workers.alarm.detectors import Detector

Ints = NDArray[np.int64]
MAX_COHORTS = 400
MAX_COHORTS_OF_SLICE = 100
_LOST_AT_ONCE = 2000
_COHORT_RESULT = struct.Struct("<Bdddd")
COHORT_RESULT_FORMAT = 1


@dataclass(frozen=True)
class CohortResult:
    """Result of one cohort for one detector: the history, and the tables for effects.

    Attributes
    ----------
    cohort : its start in seconds
    log_evidence, log_sr : values after the cohort; nan if no detector ran yet
    log_threshold : value at the cohort
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
        """Return the stored form."""
        head = _COHORT_RESULT.pack(
            COHORT_RESULT_FORMAT, self.log_evidence, self.log_sr, self.log_threshold, 0.0
        )
        sums = self.table.columns.astype("<f4").tobytes()
        return head + zlib.compress(sums + self.coverage.astype("<u4").tobytes(), 1)

    @classmethod
    def unpack(cls, cohort: int, data: bytes) -> CohortResult:
        """Read what `pack` wrote; raises PackingError."""
        number, evidence, sr, threshold, _ = _COHORT_RESULT.unpack_from(data)
        if number != COHORT_RESULT_FORMAT:
            raise PackingError(f"this version does not read a cohort result of format {number}")
        body = zlib.decompress(data[_COHORT_RESULT.size :])
        sums = np.frombuffer(body, "<f4", 5 * DRIFT_BINS).reshape(5, -1).astype(np.float64)
        counts = np.frombuffer(body, "<u4", 2 * DRIFT_BINS, sums.size * 4).reshape(2, -1)
        return cls(cohort, evidence, sr, threshold, UnitTable(*sums), counts.astype(np.int64))


def cohort_result_of(detector: Detector, cohort: DetectorCohort, threshold: float) -> CohortResult:
    """Return the result of a cohort for a detector that has just processed it."""
    state = detector.evidence
    return CohortResult(
        cohort.start_s,
        float("nan") if state is None else state.log_mixed_evidence,
        float("nan") if state is None else state.log_mixed_sr,
        float(np.log(threshold)),
        cohort.table,
        cohort.coverage,
    )


def kept_cohorts(name: str) -> int:
    """Return how many results of a detector are stored; fewer for a slice or a rater."""
    of_all = parts_of(name)[1] == ALL_ROWS and rater_in(name) is None
    return MAX_COHORTS if of_all else MAX_COHORTS_OF_SLICE


def lost_cohort_results(name: str, last: int | None, cohort: int, bucket_s: int) -> list[int]:
    """Return the cohorts whose results are dropped when `cohort` follows `last`."""
    reach = kept_cohorts(name) * bucket_s
    if last is None:
        return []
    first = max(last - reach + bucket_s, cohort - reach - (_LOST_AT_ONCE - 1) * bucket_s)
    return list(range(first, cohort - reach + bucket_s, bucket_s))


def end_of_selected(cohort_results: list[CohortResult], start: int | None, alarmed_at: int) -> int:
    """Return the last cohort that chose the start of a change: the one that raised the alarm.

    If the change began after the alarm, which is still unacknowledged, it is the middle of the cohorts since then.
    """
    if start is None or start <= alarmed_at:
        return alarmed_at
    begun = [
        cohort_result.cohort for cohort_result in cohort_results if cohort_result.cohort >= start
    ]
    return begun[(len(begun) - 1) // 2] if begun else alarmed_at
