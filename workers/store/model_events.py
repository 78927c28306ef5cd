"""Dated events of a model: a new version, pipeline or scanner, or setting. They are stored with its configuration, which exports contain.

Each may explain a change, so it is drawn on curves over time and named with the date of a change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Literal, TypedDict, get_args

from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import rfc3339

Kind = Literal["version", "pipeline", "scanner", "setting", "other"]
KINDS: tuple[Kind, ...] = get_args(Kind)
VERSION: Kind = "version"
SETTING: Kind = "setting"
MAX_EVENTS, MAX_NAME = 100, 100


class ModelEvent(TypedDict):
    """One event; `at` is RFC 3339, UTC."""

    kind: str
    name: str
    at: str


def event_of(kind: str, name: str, at: datetime) -> ModelEvent:
    """Return an event."""
    return {"kind": kind, "name": name, "at": rfc3339(at)}


def event_id(event: ModelEvent) -> str:
    """Return the id of an event: the same for the same kind, name and time."""
    named = "\n".join((event["kind"], event["name"], event["at"]))
    return f"ev_{blake2b(named.encode(), digest_size=8).hexdigest()}"


def with_events(config: ModelConfig, events: Iterable[ModelEvent]) -> ModelConfig:
    """Return a model with these events, sorted by time, each once."""
    found = {event_id(each): each for each in events}
    ordered = sorted(found.values(), key=lambda each: (each["at"], each["kind"], each["name"]))
    return replace(config, events=ordered)


def with_version(config: ModelConfig, name: str, at: datetime) -> ModelConfig:
    """Return a model with the event of a version at its earliest prediction; unchanged if that is known, or no event has room."""
    known = [each for each in config.events if (each["kind"], each["name"]) == (VERSION, name)]
    is_known = any(datetime.fromisoformat(each["at"]) <= at for each in known)
    others = [each for each in config.events if each not in known]
    if is_known or len(others) >= MAX_EVENTS:
        return config
    return with_events(config, [*others, event_of(VERSION, name, at)])


def with_settings(
    config: ModelConfig, changes: Iterable[str], about: str, at: datetime
) -> ModelConfig:
    """Return a model with an event for each change of a setting, with its author and reason; the oldest such events make room."""
    made = [event_of(SETTING, f"{each} {about}"[:MAX_NAME], at) for each in changes]
    known = [*config.events, *made]
    surplus = max(0, len(known) - MAX_EVENTS)
    lost = [each for each in known if each["kind"] == SETTING][:surplus]
    return with_events(config, [each for each in known if each not in lost])


def events_between(config: ModelConfig, from_s: float, to_s: float) -> list[ModelEvent]:
    """Return the events in [from, to), in seconds since the epoch."""
    return [each for each in config.events if from_s <= seconds_of(each) < to_s]


def seconds_of(event: ModelEvent) -> float:
    """Return the time of an event in seconds since the epoch."""
    return datetime.fromisoformat(event["at"]).timestamp()


def checked_events(stored: object) -> list[ModelEvent]:
    """Return the events of an imported configuration.

    Raises
    ------
    ValueError, TypeError, KeyError
        They are no events, or too many.
    """
    if not isinstance(stored, list) or len(stored) > MAX_EVENTS:
        raise ValueError(f"received other events; expected a list of at most {MAX_EVENTS}")
    found = [
        event_of(each["kind"], each["name"], datetime.fromisoformat(each["at"]).astimezone(UTC))
        for each in stored
    ]
    if any(each["kind"] not in KINDS or not 0 < len(each["name"]) <= MAX_NAME for each in found):
        raise ValueError("received another event; expected a known kind and a name")
    return found
