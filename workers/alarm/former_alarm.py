"""Conversion of alarms in exports of versions with another statistic: tables and counters are kept, its evidence is dropped.

The rule of change evaluates the tables again at the next cohort.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.core.packing import unpack
from calibrant.drift.unit_tables import UnitTable
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.cohort_history import CohortResult
from calibrant_server.workers.alarm.detectors import MAX_BYTES, Detector

FORMER = 1
_HEAD = struct.Struct("<Bdddd")
_KEPT = (
    "begun",
    "last",
    "episode",
    "map_version",
    "n_passed",
    "why_passed",
    "units",
    "n_left_out",
)
_NO_COUNTS = np.zeros((2, 0), np.int64)
_GONE = ("threshold", "evidence_log10", "sr_log10", "log_evidence")


def current_detector(data: bytes, settings: AlarmSettings) -> Detector:
    """Read a detector of this or the former format; raise PackingError."""
    arrays, about = unpack(data, largest=MAX_BYTES)
    if about.get("alarm") != FORMER:
        return Detector.unpack(data)
    kept = {name: about[name] for name in _KEPT if name in about}
    return Detector(settings.made_of, **kept, total=UnitTable(*arrays["total"]))


def current_result(cohort: int, data: bytes) -> CohortResult:
    """Read a cohort result of this or the former format; raise PackingError."""
    if not data or data[0] != FORMER:
        return CohortResult.unpack(cohort, data)
    *_, log_threshold, _ = _HEAD.unpack_from(data)
    rest = CohortResult(cohort, 1.0, float(np.exp(-log_threshold)), UnitTable.empty(), _NO_COUNTS)
    body = zlib.decompress(data[_HEAD.size :])
    return CohortResult.unpack(cohort, rest.head() + zlib.compress(body, 1))


def current_summary(holds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the gauges of this or the former format."""
    p = holds.get("p")
    valid = isinstance(p, dict) and all(isinstance(each, int | float) for each in p.values())
    return {name: each for name, each in holds.items() if name not in _GONE} | {
        "p": p if valid else {}
    }
