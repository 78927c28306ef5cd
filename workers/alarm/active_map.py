"""The active calibration map of the alarm. It changes with the command that a promotion appends to the stream.

The data that a map was fitted to are no evidence about it. Cohorts that begin before the end of its window are closed
to detectors that bet on mapped scores.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig


@dataclass(frozen=True)
class ActiveMap:
    """A promoted version.

    Attributes
    ----------
    version : its number as text, None if no map is active
    fitted_to_s : end of the window that it was fitted to, in seconds
    fitted : method, scope, class and parameters; None if there is no map or it is unreadable
    """

    version: str | None = None
    fitted_to_s: int | None = None
    fitted: Mapping[str, Any] | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the active map is unreadable."""
        return self.version is not None and self.fitted is None

    def closed_to(self, bucket_s: int, last: int | None) -> int | None:
        """Return the last cohort closed to detectors under this map; `last` was closed before."""
        if self.fitted_to_s is None:
            return last
        inside = (self.fitted_to_s - 1) // bucket_s * bucket_s
        return inside if last is None else max(last, inside)

    def to_json(self) -> bytes:
        """Return the stored form. The formula is stored with the versions."""
        return json.dumps({"version": self.version, "fitted_to_s": self.fitted_to_s}).encode()


NO_MAP = ActiveMap()


def promoted_map(
    node: Any, keys: PartitionKeys, config: ModelConfig, version: str | None
) -> ActiveMap:
    """Create from a version at its promotion."""
    if version is None:
        return ActiveMap()
    text = node.hget(keys.map_versions(config.key, config.generation), f"v{version}")
    if text is None:
        return ActiveMap(version)
    body = json.loads(text)
    ends = (body.get("window") or {}).get("to")
    fitted_to_s = None if ends is None else int(datetime.fromisoformat(ends).timestamp())
    named = {name: body.get(name) for name in ("method", "scope", "class", "parameters")}
    return ActiveMap(version, fitted_to_s, named)
