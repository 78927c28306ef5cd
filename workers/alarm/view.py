"""The alarm of one model as answers read it, all as it was at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.alarm.detectors import Detector, Look, detector_name
from workers.alarm.held import read_detectors, read_looks
from workers.alarm.settings import AlarmSettings
from workers.state.keys import LAST_CHANGE, PartitionKeys
from workers.state.marks import plain_slice
from workers.state.registry import ModelConfig
from workers.windows import Window


@dataclass(frozen=True)
class AlarmView:
    """What is held of a model's alarm, and of the detector that is asked about.

    Attributes
    ----------
    version : of the last change, empty where there was none
    name : of the detector that is asked about
    looks : of that detector, oldest first
    window : that is asked about
    """

    version: bytes
    detectors: dict[str, Detector]
    name: str
    looks: list[Look]
    window: Window

    @property
    def detector(self) -> Detector | None:
        return self.detectors.get(self.name)


def read_view(
    node: Any, keys: PartitionKeys, config: ModelConfig, slice_: str, window: Window, params: Mapping[str, Any]
) -> AlarmView:
    """Read the alarm of a model; `scope` in the parameters names a class, where classes are watched."""
    name = detector_name(params.get("scope") or AlarmSettings.of(config).scopes[0], plain_slice(slice_))
    with node.pipeline(transaction=True) as pipe:
        pipe.hgetall(keys.detectors(config.key, config.generation))
        pipe.hgetall(keys.looks(config.key, config.generation, name))
        found, looks = pipe.execute()
    version = found.get(LAST_CHANGE.encode(), b"")
    return AlarmView(version, read_detectors(found), name, read_looks(looks), window)
