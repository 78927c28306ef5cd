"""A commit that changes a model's alarm: detectors, cohort results, episodes, deliveries and gauges together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from time import time
from typing import Any, TypedDict

from calibrant_server.workers.alarm.alarm_settings import ActiveMap, AlarmSettings
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.cohort_history import CohortResult, lost_cohorts
from calibrant_server.workers.alarm.cohorts import detector_name, rater_in
from calibrant_server.workers.alarm.deliveries import RAISED, WAS_CLOSED, delivery_of
from calibrant_server.workers.alarm.detectors import Detector, n_requested, requested
from calibrant_server.workers.alarm.episodes import (
    CLOSED,
    Episode,
    at,
    event_id,
    shown,
)
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.keys import ACTIVE_MAP, LAST_CHANGE
from calibrant_server.workers.store.model_config import ModelConfig

# What a notification states of each of its alarms.
OF_SCOPE = ("id", "scope", "slice", "calibration", "change", "effect")


class AlarmSummary(TypedDict):
    """The gauges of a model, as stored: those of the main detector, of which some are None before its first cohort.

    `n_alarms` counts open changes, `p` is by detector of a slice or class, `cohort` is the start of the last one, and `bins` are
    sums by bin of the scope.
    """

    generation: str
    n_detectors: int
    n_alarms: int
    first_cohort: int | None
    cohort: int | None
    p: dict[str, float]
    scope: str
    bins: list[list[float]]


@dataclass(frozen=True)
class AlarmCommit:
    """A commit that changes a model's alarm, with its token and the clock."""

    commit: Commit
    alarm_state: AlarmState
    token: bytes = field(default_factory=lambda: token_hex(8).encode())
    now_s: float = field(default_factory=time)

    @property
    def config(self) -> ModelConfig:
        return self.alarm_state.config

    @property
    def settings(self) -> AlarmSettings:
        return self.alarm_state.settings

    def detectors(self, changed: Mapping[str, Detector]) -> None:
        """Write detectors and the version that results depend on."""
        key = self.commit.keys.detectors(self.config.key, self.config.generation)
        fields: dict[str, bytes] = {name: each.pack() for name, each in changed.items()}
        self.commit.set_fields(key, {**fields, LAST_CHANGE: self.token})
        self.alarm_state.detectors.update(changed)
        summary = summary_of(self.config, self.settings, self.alarm_state.detectors)
        self.commit.set_fields(self.commit.keys.summaries, {self.config.key: summary})

    def episode(self, episode: Episode, kind: str) -> None:
        """Write a change of an episode and notify all receivers."""
        self.store(episode)
        self.notify(kind, f"{episode.id}|{episode.number}", shown(episode))

    def store(self, episode: Episode) -> None:
        """Write a change of an episode."""
        self.commit.set_fields(self.commit.keys.episodes, episode.fields())

    def raise_event(self, raised: Iterable[Episode]) -> list[Episode]:
        """Write the alarms that one cohort raised, with one notification for all; return them, that of all rows first."""
        ordered = sorted(raised, key=lambda each: (each.slice != "", -(each.evidence_log10 or 0.0), each.id))  # fmt: skip
        if not ordered:
            return []
        name = event_id(ordered[0])
        alarms = [replace(each, event=name) for each in ordered]
        for each in alarms:
            self.store(each)
        scopes = [{field: shown(each)[field] for field in OF_SCOPE} for each in alarms]
        self.notify(RAISED, f"{name}|{alarms[0].number}", {**shown(alarms[0]), "scopes": scopes})
        return alarms

    def notify(self, kind: str, about: str, data: Mapping[str, Any]) -> list[str]:
        """Enqueue a message to each receiver; return the ids."""
        made = [
            delivery_of(
                self.config.key,
                self.config.generation,
                webhook.url,
                kind,
                about,
                data,
                self.now_s,
                at(self.now_s),
            )
            for webhook in self.settings.webhooks
        ]
        for each in made:
            self.commit.set_fields(self.commit.keys.deliveries, {each.id: each.to_json()})
        return [each.id for each in made]

    def close(self, alarm_id: str, because: str) -> None:
        """Close an episode, if it is not closed."""
        episode = self.alarm_state.episode(alarm_id)
        if episode is not None and episode.status != CLOSED:
            number = self.alarm_state.next_number()
            self.episode(episode.closed(because, self.now_s, number), WAS_CLOSED)

    def cohort_result(
        self, name: str, result: CohortResult, cohorts: Sequence[int], detector: Detector
    ) -> None:
        """Write the result of the last of a detector's cohorts; drop those that are no longer needed."""
        key = self.commit.keys.cohort_results(self.config.key, self.config.generation, name)
        self.commit.set_fields(key, {str(result.cohort): result.pack()})
        self.alarm_state.note(name, result)
        lost = lost_cohorts(name, cohorts, detector.begun)
        if lost:
            self.commit.drop_fields(key, [str(start) for start in lost])

    def set_active_map(self, promoted: ActiveMap) -> None:
        """Write the active calibration map."""
        key = self.commit.keys.detectors(self.config.key, self.config.generation)
        self.commit.set_fields(key, {ACTIVE_MAP: promoted.to_json()})
        self.alarm_state.active_map = promoted


def summary_of(
    config: ModelConfig, settings: AlarmSettings, detectors: Mapping[str, Detector]
) -> bytes:
    """Write the gauges of a model, so that reading them needs no detector."""
    main = detectors.get(detector_name(settings.scopes[0], ""))
    stored: AlarmSummary = {
        "generation": config.generation,
        "n_detectors": n_requested(detectors, settings) if detectors else 0,
        "n_alarms": sum(detectors[name].in_alarm for name in requested(detectors, settings)),
        "first_cohort": None if main is None else main.begun,
        "cohort": None if main is None else main.last,
        "p": {
            name: detectors[name].p
            for name in requested(detectors, settings)
            if detectors[name].begun is not None and rater_in(name) is None
        },
        "scope": settings.scopes[0],
        "bins": [] if main is None else main.total.columns[:3].tolist(),
    }
    return json.dumps(stored, separators=(",", ":")).encode()
