"""A consistent snapshot of a model's alarm, for queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from calibrant.core.pane import Pane
from calibrant.drift.calibration import OFF
from calibrant_server.workers.alarm.active_map import ActiveMap, read_active_map
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.alarm_state import (
    AlarmState,
    read_cohort_results,
    read_detectors,
)
from calibrant_server.workers.alarm.cohort_evidence import RaterResult
from calibrant_server.workers.alarm.cohort_history import CohortResult
from calibrant_server.workers.alarm.cohorts import detector_name
from calibrant_server.workers.alarm.detectors import Detector, OpenChange
from calibrant_server.workers.alarm.episodes import Episode
from calibrant_server.workers.alarm.reference import Reference
from calibrant_server.workers.store.keys import LAST_CHANGE, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.read_together import ReadTogether
from calibrant_server.workers.store.slice_names import plain_slice
from calibrant_server.workers.store.windows import Window

DUPLICATES = "duplicates"


@dataclass(frozen=True)
class AlarmSnapshot:
    """The stored state of a model's alarm and of the requested detector.

    Attributes
    ----------
    version : version of the last change, empty if there was none
    name : name of the requested detector
    cohort_results : cohort results of that detector, oldest first
    window : the requested window
    active_map : the active calibration map
    rater_results : raters by cohort
    n_duplicates : repeated predictions and labels that were dropped
    episode : the requested detector's open alarm, or None
    sealed : the merged sealed panes since the baseline, if the query needs them
    changed : the merged sealed panes of the cohorts that an update corrects, and of those after the alarm
    reference : of the model
    """

    version: bytes
    detectors: dict[str, Detector]
    name: str
    cohort_results: list[CohortResult]
    window: Window
    active_map: ActiveMap = field(default_factory=ActiveMap)
    rater_results: dict[int, RaterResult] = field(default_factory=dict)
    n_duplicates: int = 0
    episode: Episode | None = None
    sealed: Pane | None = None
    changed: tuple[Pane, Pane] | None = None
    reference: Reference = field(default_factory=Reference)

    def since_baseline(self, config: ModelConfig) -> Window | None:
        """The cohorts processed by the requested detector since its baseline."""
        each = self.detector
        if each is None or each.begun is None or each.last is None:
            return None
        return Window(each.begun, each.last + AlarmSettings.of(config).bucket_s)

    @property
    def change(self) -> OpenChange | None:
        """The open change of the requested detector."""
        return None if self.detector is None else self.detector.change

    def corrected(self, config: ModelConfig) -> tuple[Window, Window] | None:
        """The cohorts that an update corrects, and those of them after the alarm: since an open change, or the recent ones if off."""
        each, length_s = self.detector, AlarmSettings.of(config).bucket_s
        if each is None or each.last is None or not (each.change or each.words.calibration == OFF):
            return None
        recent = each.recent(each.counted(self.cohort_results))
        if not recent:
            return None
        end_s = each.last + length_s
        later = end_s if each.change is None else min(each.change.alarmed_at + length_s, end_s)
        return Window(recent[0].cohort, end_s), Window(later, end_s)

    @property
    def detector(self) -> Detector | None:
        return self.detectors.get(self.name)


def read_snapshot(
    node: Any,
    keys: PartitionKeys,
    config: ModelConfig,
    slice_: str,
    window: Window,
    scope: str | None = None,
) -> AlarmSnapshot:
    """Read the alarm of a model; `scope` names a class if classes are watched."""
    name = detector_name(scope or AlarmSettings.of(config).scopes[0], plain_slice(slice_))
    reads = ReadTogether()
    reads.hgetall(keys.detectors(config.key, config.generation))
    reads.hgetall(keys.cohort_results(config.key, config.generation, name))
    reads.hgetall(keys.rater_results(config.key, config.generation))
    reads.hget(keys.tallies(config.key, config.generation), DUPLICATES)
    found, cohort_results, raters, duplicates = reads.run(node)
    detectors = read_detectors(found)
    return AlarmSnapshot(
        alarm_version(found.get(LAST_CHANGE.encode()), duplicates),
        detectors,
        name,
        read_cohort_results(cohort_results),
        window,
        read_active_map(node, keys, config),
        {int(start): RaterResult.from_json(text) for start, text in raters.items()},
        int(duplicates or 0),
        _episode(node, keys, detectors.get(name)),
        reference=AlarmState(node, keys, config).reference,
    )


def _episode(node: Any, keys: PartitionKeys, detector: Detector | None) -> Episode | None:
    """Return the open alarm of a detector; its time and cause do not change."""
    text = node.hget(keys.episodes, detector.episode) if detector and detector.episode else None
    return None if text is None else Episode.from_json(text)


def alarm_version(last_change: bytes | None, duplicates: bytes | None) -> bytes:
    """Return what a result about an alarm depends on in addition to panes."""
    return (last_change or b"") + b"|" + (duplicates or b"") if last_change or duplicates else b""
