"""Episodes: an alarm from its start to its acknowledgement or end, with its notifications.

An episode's id is made of the detector and the cohort that raised it, and names its partition. The same alarm has the
same id however often its commit is prepared.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from calibrant.core.actions import Advice
from calibrant.results.drift import RATER
from calibrant_server.workers.store.key_names import model_key
from calibrant_server.workers.store.windows import rfc3339

OPEN, ACKNOWLEDGED, CLOSED = "open", "acknowledged", "closed"
LAST_NUMBER = "*"
_ID = re.compile(r"al_(\d{3,4})_[0-9a-f]{20}")


@dataclass(frozen=True)
class Episode:
    """One alarm."""

    id: str
    tenant: str
    model: str
    generation: str
    scope: str
    slice: str
    status: str
    number: int  # number of its last change, counted by the partition
    cohort: int  # cohort, start_of_change: starts in seconds
    bucket_s: int
    start_of_change: int | None
    # evidence_log10, threshold_log10: −log10 of the p-value of the change when it was raised, and of the level
    evidence_log10: float | None
    threshold_log10: float | None
    effect: dict[str, Any]  # effect, recommendation: values at that time
    recommendation: Advice
    map_version: str | None
    raised_s: float
    changed_s: float  # time of its last change, seconds since the epoch
    acknowledged_by: str | None = None
    note: str | None = None
    closed_because: str | None = None
    title: str | None = None  # its subject in a few words
    # time of its acknowledgement; None if there is none, or if it was not stored
    acknowledged_s: float | None = None
    # id shared by the alarms of one change; None of older versions
    event: str | None = None
    acknowledged_role: str | None = None
    # calibration, change: the two words at that time, as in `GET drift`; None of older versions
    calibration: dict[str, Any] | None = None
    change: dict[str, Any] | None = None

    @property
    def of(self) -> tuple[str, str]:
        """`tenant/model` and generation."""
        return model_key(self.tenant, self.model), self.generation

    @property
    def is_of_all(self) -> bool:
        """Whether it is of all rows and all raters."""
        return not self.slice and not self.scope.startswith(RATER)

    @property
    def leads(self) -> bool:
        """Whether it stands for the alarms of its event: it is of all rows, or was the first."""
        return self.is_of_all or self.event in (None, event_id(self))

    @property
    def is_acknowledged(self) -> bool:
        """Whether a user acknowledged it."""
        return self.acknowledged_by is not None

    def to_json(self) -> bytes:
        """Return the stored form."""
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True).encode()

    def fields(self) -> dict[str, bytes | str]:
        """Return what is stored of a change of the episode: the episode, and the number of the last change."""
        return {self.id: self.to_json(), LAST_NUMBER: str(self.number)}

    @classmethod
    def from_json(cls, text: bytes | str) -> Episode:
        """Read an episode; skip names of later versions."""
        stored = json.loads(text)
        if stored.get("status") == ACKNOWLEDGED and stored.get("acknowledged_s") is None:
            # The acknowledgement was its last change.
            stored["acknowledged_s"] = stored["changed_s"]
        return cls(**{name: stored.get(name) for name in cls.__dataclass_fields__})

    def acknowledged(
        self, by: str, note: str | None, now_s: float, number: int, role: str | None = None
    ) -> Episode:
        """Return the acknowledged episode."""
        noted = replace(self, acknowledged_by=by, acknowledged_role=role, note=note, number=number)
        return replace(noted, status=ACKNOWLEDGED, changed_s=now_s, acknowledged_s=now_s)

    def closed(self, because: str, now_s: float, number: int) -> Episode:
        """Return the closed episode."""
        return replace(self, status=CLOSED, closed_because=because, changed_s=now_s, number=number)


_AS_STORED = (
    "id", "event", "model", "scope", "evidence_log10", "threshold_log10", "effect", "map_version",
    "acknowledged_by", "acknowledged_role", "note", "closed_because",
)  # fmt: skip
_SENTENCES = {"calibration": "sentence", "change": "sentence", "recommendation": "reason"}


def shown(episode: Episode, is_new: bool = False) -> dict[str, Any]:
    """Return an episode as sent to clients and receivers. Later, its sentences say of which time they are."""
    times = {
        "raised_at": episode.raised_s,
        "start_of_change": episode.start_of_change,
        "changed_at": episode.changed_s,
        "acknowledged_at": episode.acknowledged_s,
    }
    words = {name: getattr(episode, name) for name in _SENTENCES}
    return {
        **{name: getattr(episode, name) for name in _AS_STORED},
        **{name: None if time_s is None else at(time_s) for name, time_s in times.items()},
        **{
            name: each if is_new else _dated(each, _SENTENCES[name]) for name, each in words.items()
        },
        "state": episode.status,
        "title": episode.title or "calibration drift",
        "slice": episode.slice or None,
        "cohort": interval(episode.cohort, episode.bucket_s),
    }


def _dated(words: Mapping[str, Any] | None, name: str) -> dict[str, Any] | None:
    return None if words is None else {**words, name: f"When raised: {words[name]}"}


def at(seconds: float) -> str:
    """Return seconds since the epoch as RFC 3339."""
    return rfc3339(datetime.fromtimestamp(seconds, UTC))


def interval(start_s: int, length_s: int) -> dict[str, str]:
    """A cohort as an interval."""
    return {"from": at(start_s), "to": at(start_s + length_s)}


def episode_id(partition: int, model: str, generation: str, detector: str, cohort: int) -> str:
    """Return the id of an alarm."""
    named = f"{model}|{generation}|{detector}|{cohort}".encode()
    return f"al_{partition:03d}_{blake2b(named, digest_size=10).hexdigest()}"


def event_id(leading: Episode) -> str:
    """Return the id of the alarms of one cohort: that of the leading one, under another name."""
    return f"ev_{blake2b(leading.id.encode(), digest_size=10).hexdigest()}"


def partition_in(alarm_id: str) -> int | None:
    """Return the partition that an alarm's id names; None if it is not such an id."""
    found = _ID.fullmatch(alarm_id)
    return int(found[1]) if found else None


def read_episodes(found: Mapping[bytes, bytes]) -> list[Episode]:
    """Return the episodes of a partition, without the number of the last change."""
    return [Episode.from_json(text) for name, text in found.items() if name != LAST_NUMBER.encode()]


def log10_of_p(p: float) -> float:
    """Return how unlikely a p-value is, in decades; 0 for 1."""
    return -math.log10(p) + 0.0
