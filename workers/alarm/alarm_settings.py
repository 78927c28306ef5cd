"""What a model's alarm depends on: its settings, validated by the HTTP service, and the active calibration map.

The map changes with the command that a promotion appends to the stream. The data that it was fitted to are no evidence about it:
cohorts that begin before the end of its window are closed to detectors that bet on mapped scores.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from hashlib import blake2b
from typing import Any

from calibrant.core.durations import parse_duration
from calibrant.drift.calibration import TOLERANCE
from calibrant.drift.cohort_tables import OWN_SCORE
from calibrant.inference.false_alarm_rate import DEFAULT_FALSE_ALARMS, FalseAlarms
from calibrant_server.workers.alarm.deliveries import STANDARD
from calibrant_server.workers.store.key_names import PartitionKeys
from calibrant_server.workers.store.model_config import OBSERVE, ModelConfig

DEFAULT_BUCKET = "P1D"
RAW, MAPPED = "raw", "mapped"
ONE_RATER = "rater:"
DEFAULT_RATERS = 8


@dataclass(frozen=True)
class Webhook:
    """A receiver: a URL, the secret that signs messages to it (or is its routing key), and their form."""

    url: str
    secret: str
    format: str = STANDARD


@dataclass(frozen=True)
class AlarmSettings:
    """Settings of one model's alarm."""

    tolerance: float = TOLERANCE  # allowed calibration error
    # how often an alarm may be false, over all detectors of the model
    false_alarms: str = DEFAULT_FALSE_ALARMS
    bucket: str = DEFAULT_BUCKET  # length of a cohort
    # `score` (top label, or positive class of a binary model), or indices of classes
    bets: str | tuple[int, ...] = OWN_SCORE
    scores: str = MAPPED  # `mapped` (by the active calibration map; as sent if there is none) or `raw`; in observe mode always `raw`
    raters: str = "mean"  # label policy, or `rater:NAME` for the labels of one rater
    rater_detectors: int = DEFAULT_RATERS  # how many named raters have their own detector
    false_flags: float = 0.05  # share of flagged slices that may be due to chance
    webhooks: tuple[Webhook, ...] = ()  # the receivers

    @classmethod
    def of(cls, config: ModelConfig) -> AlarmSettings:
        """Return the settings of a model with defaults; skip names of later versions."""
        known = {each.name for each in fields(cls)}
        given = {name: value for name, value in config.alarm.items() if name in known}
        if config.mode == OBSERVE:
            # No user applies a map, so mapped scores are not what users see.
            given["scores"] = RAW
        if isinstance(given.get("bets"), list):
            given["bets"] = tuple(given["bets"])
        webhooks = tuple(
            Webhook(each["url"], each.get("secret", ""), each.get("format", STANDARD))
            for each in given.pop("webhooks", None) or ()
        )
        return cls(**given, webhooks=webhooks)

    @property
    def bucket_s(self) -> int:
        """Length of a cohort in seconds."""
        return int(parse_duration(self.bucket))

    @property
    def run_length(self) -> float:
        """Mean number of cohorts until a false alarm of any detector."""
        return FalseAlarms.parse(self.false_alarms).run_length(self.bucket_s)

    def level(self, n_detectors: int) -> float:
        """Return the level of a cohort's tests of each of several detectors that together have the false-alarm rate of one."""
        return 1.0 / (self.run_length * n_detectors)

    @property
    def is_mapped(self) -> bool:
        """Whether bets are on mapped scores."""
        return self.scores == MAPPED

    @property
    def rater(self) -> str | None:
        """The rater whose labels alone count; None if a policy applies."""
        return self.raters.removeprefix(ONE_RATER) if self.raters.startswith(ONE_RATER) else None

    @property
    def policy(self) -> str:
        """The label policy of data without named raters: that of panes."""
        return "mean" if self.rater is not None else self.raters

    @property
    def scopes(self) -> tuple[str, ...]:
        """What is watched in each slice: the score itself, or classes."""
        if isinstance(self.bets, str):
            return (OWN_SCORE,)
        return tuple(f"class:{index}" for index in self.bets)

    @property
    def made_of(self) -> str:
        """Name of what evidence depends on. Evidence under other settings is not added to it."""
        parts = [self.bucket_s, self.raters, self.scores]
        return blake2b(repr(parts).encode(), digest_size=6).hexdigest()


@dataclass(frozen=True)
class ActiveMap:
    """A promoted version."""

    version: str | None = None  # its number as text, None if no map is active
    fitted_to_s: int | None = None  # end of the window that it was fitted to, in seconds
    # method, scope, class and parameters; None if there is no map or it is unreadable
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
