"""The alarm of one model as answers read it, all as it was at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calibrant.core.pane import Pane
from calibrant_server.workers.alarm.active_map import InForce, read_in_force
from calibrant_server.workers.alarm.alarm_state import read_detectors, read_looks
from calibrant_server.workers.alarm.cohort_evidence import RaterLook
from calibrant_server.workers.alarm.cohort_history import CohortResult
from calibrant_server.workers.alarm.cohorts import detector_name
from calibrant_server.workers.alarm.detectors import Detector
from calibrant_server.workers.alarm.episodes import Episode
from calibrant_server.workers.alarm.settings import AlarmSettings
from calibrant_server.workers.store.keys import LAST_CHANGE, PartitionKeys
from calibrant_server.workers.store.registry import ModelConfig
from calibrant_server.workers.store.watermarks import plain_slice
from calibrant_server.workers.store.windows import Window

DUPLICATES = "duplicates"


@dataclass(frozen=True)
class AlarmView:
    """What is held of a model's alarm, and of the detector that is asked about.

    Attributes
    ----------
    version : of the last change, empty where there was none
    name : of the detector that is asked about
    looks : of that detector, oldest first
    window : that is asked about
    in_force : the calibration map in force
    rater_looks : who rated, by cohort
    n_duplicates : predictions and labels that came again and were dropped
    episode : the asked detector's alarm that is not closed, None without
    sealed : the sealed panes since the baseline merged, where the answer asks for them
    """

    version: bytes
    detectors: dict[str, Detector]
    name: str
    looks: list[CohortResult]
    window: Window
    in_force: InForce = field(default_factory=InForce)
    rater_looks: dict[int, RaterLook] = field(default_factory=dict)
    n_duplicates: int = 0
    episode: Episode | None = None
    sealed: Pane | None = None

    def since_baseline(self, config: ModelConfig) -> Window | None:
        """The cohorts that the asked detector has seen since its baseline."""
        each = self.detector
        if each is None or each.begun is None or each.last is None:
            return None
        return Window(each.begun, each.last + AlarmSettings.of(config).bucket_s)

    @property
    def detector(self) -> Detector | None:
        return self.detectors.get(self.name)


def read_view(
    node: Any,
    keys: PartitionKeys,
    config: ModelConfig,
    slice_: str,
    window: Window,
    params: Mapping[str, Any],
) -> AlarmView:
    """Read the alarm of a model; `scope` in the parameters names a class, where classes are watched."""
    name = detector_name(
        params.get("scope") or AlarmSettings.of(config).scopes[0], plain_slice(slice_)
    )
    with node.pipeline(transaction=True) as pipe:
        pipe.hgetall(keys.detectors(config.key, config.generation))
        pipe.hgetall(keys.looks(config.key, config.generation, name))
        pipe.hgetall(keys.rater_looks(config.key, config.generation))
        pipe.hget(keys.tallies(config.key, config.generation), DUPLICATES)
        found, looks, raters, duplicates = pipe.execute()
    detectors = read_detectors(found)
    return AlarmView(
        alarm_version(found.get(LAST_CHANGE.encode()), duplicates),
        detectors,
        name,
        read_looks(looks),
        window,
        read_in_force(node, keys, config),
        {int(start): RaterLook.from_json(text) for start, text in raters.items()},
        int(duplicates or 0),
        _episode(node, keys, detectors.get(name)),
    )


def _episode(node: Any, keys: PartitionKeys, detector: Detector | None) -> Episode | None:
    """The alarm of a detector that is not closed; when it went off and why does not change."""
    text = node.hget(keys.episodes, detector.episode) if detector and detector.episode else None
    return None if text is None else Episode.from_json(text)


def alarm_version(last_change: bytes | None, duplicates: bytes | None) -> bytes:
    """What an answer about an alarm rests on beside panes."""
    return (last_change or b"") + b"|" + (duplicates or b"") if last_change or duplicates else b""
