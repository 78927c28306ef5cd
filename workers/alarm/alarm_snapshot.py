"""A consistent snapshot of a model's alarm, for queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from calibrant.core.pane import Pane
from calibrant_server.workers.alarm.active_map import ActiveMap, read_active_map
from calibrant_server.workers.alarm.alarm_state import read_cohort_results, read_detectors
from calibrant_server.workers.alarm.cohort_evidence import RaterResult
from calibrant_server.workers.alarm.cohort_history import CohortResult, end_of_selected
from calibrant_server.workers.alarm.cohorts import detector_name
from calibrant_server.workers.alarm.detectors import Detector
from calibrant_server.workers.alarm.episodes import Episode
from calibrant_server.workers.alarm.settings import AlarmSettings
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
    changed : of an alarm, the merged sealed panes since the change, and those of the cohorts after the alarm
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

    def since_baseline(self, config: ModelConfig) -> Window | None:
        """The cohorts processed by the requested detector since its baseline."""
        each = self.detector
        if each is None or each.begun is None or each.last is None:
            return None
        return Window(each.begun, each.last + AlarmSettings.of(config).bucket_s)

    @property
    def change(self) -> tuple[int | None, int | None]:
        """Start of change and cohort of the open or acknowledged alarm, or None.

        Only alarms have a start of change: without one, it is the place with the most unlikely data.
        """
        state = None if self.detector is None else self.detector.state
        if state is not None and state.alarmed_at is not None:
            return state.start_of_change, state.alarmed_at
        if state is not None and state.acknowledged_at is not None and self.episode is not None:
            return self.episode.start_of_change, self.episode.cohort
        return None, None

    def since_change(self, config: ModelConfig) -> tuple[Window, Window] | None:
        """The cohorts since the change whose results are stored, and those of them after the alarm."""
        (start, alarmed_at), each = self.change, self.detector
        if start is None or alarmed_at is None or each is None or each.last is None:
            return None
        length_s = AlarmSettings.of(config).bucket_s
        end_s, kept_from = (
            each.last + length_s,
            self.cohort_results[0].cohort if self.cohort_results else start,
        )
        later = end_of_selected(self.cohort_results, start, alarmed_at) + length_s
        return Window(max(start, kept_from), end_s), Window(later, end_s)

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
    )


def _episode(node: Any, keys: PartitionKeys, detector: Detector | None) -> Episode | None:
    """Return the open alarm of a detector; its time and cause do not change."""
    text = node.hget(keys.episodes, detector.episode) if detector and detector.episode else None
    return None if text is None else Episode.from_json(text)


def alarm_version(last_change: bytes | None, duplicates: bytes | None) -> bytes:
    """Return what a result about an alarm depends on in addition to panes."""
    return (last_change or b"") + b"|" + (duplicates or b"") if last_change or duplicates else b""
