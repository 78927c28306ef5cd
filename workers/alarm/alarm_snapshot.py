"""A consistent snapshot of a model's alarm, for queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from calibrant.core.pane import Pane
from calibrant.drift.calibration import OFF
from calibrant_server.workers.alarm.active_map import ActiveMap
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.cohort_history import CohortResult
from calibrant_server.workers.alarm.cohorts import detector_name
from calibrant_server.workers.alarm.detectors import Detector, OpenChange
from calibrant_server.workers.alarm.episodes import Episode
from calibrant_server.workers.alarm.reference import Reference
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.slice_names import plain_slice
from calibrant_server.workers.store.windows import Window


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
    episode : the requested detector's open alarm, or None
    changed : the merged sealed panes of the cohorts that an update corrects, and of those after the alarm
    reference : of the model
    """

    version: bytes
    detectors: dict[str, Detector]
    name: str
    cohort_results: list[CohortResult]
    window: Window
    active_map: ActiveMap = field(default_factory=ActiveMap)
    episode: Episode | None = None
    changed: tuple[Pane, Pane] | None = None
    reference: Reference = field(default_factory=Reference)

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
    state = AlarmState(node, keys, config)
    state.read_together(name)
    detector = state.detectors.get(name)
    return AlarmSnapshot(
        state.version,
        state.detectors,
        name,
        state.cohort_results(name),
        window,
        state.active_map,
        episode=state.episode(detector.episode) if detector and detector.episode else None,
        reference=state.reference,
    )
