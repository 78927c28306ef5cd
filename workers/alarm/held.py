"""What a model's alarm is at now, as the store has it: detectors, their looks, episodes."""

from __future__ import annotations

from typing import Any

from workers.alarm.detectors import Detector, Look
from workers.alarm.episodes import LAST_NUMBER, Episode
from workers.state.keys import LAST_CHANGE, PartitionKeys
from workers.state.registry import ModelConfig


class Held:
    """Detectors by name, read once; looks and episodes read when they are asked for.

    Read after the token: what has changed since then makes the commit be refused.
    """

    def __init__(self, node: Any, keys: PartitionKeys, config: ModelConfig):
        self._node, self._keys, self.config = node, keys, config
        found = node.hgetall(keys.detectors(config.key, config.generation))
        self.detectors = read_detectors(found)
        self._number: int | None = None

    def looks(self, name: str) -> list[Look]:
        """The kept looks of a detector, oldest first."""
        key = self._keys.looks(self.config.key, self.config.generation, name)
        return read_looks(self._node.hgetall(key))

    def episode(self, alarm_id: str) -> Episode | None:
        """An episode, or None."""
        text = self._node.hget(self._keys.episodes, alarm_id)
        return None if text is None else Episode.from_json(text)

    def next_number(self) -> int:
        """The number of one more change of an episode."""
        if self._number is None:
            self._number = int(self._node.hget(self._keys.episodes, LAST_NUMBER) or 0)
        self._number += 1
        return self._number


def read_detectors(found: dict[bytes, bytes]) -> dict[str, Detector]:
    """Detectors by name from a model's hash, which also names the version of its last change."""
    return {
        name.decode(): Detector.unpack(data)
        for name, data in sorted(found.items())
        if name != LAST_CHANGE.encode()
    }


def read_looks(found: dict[bytes, bytes]) -> list[Look]:
    """Looks from a detector's hash, oldest first."""
    return [
        Look.unpack(cohort, data)
        for cohort, data in sorted((int(cohort), data) for cohort, data in found.items())
    ]
