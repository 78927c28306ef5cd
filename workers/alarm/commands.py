"""Commands about a model's alarm: their form in its partition's stream, and their effects when a worker reads them.

They acknowledge an alarm, restart under another calibration map, send a test, or record a delivery attempt.
Because they are entries of the stream, each change goes through the fencing token. A repeated command changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from calibrant_server.workers.alarm.alarm_commit import AlarmCommit
from calibrant_server.workers.alarm.alarm_settings import promoted_map
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.cohorts import detector_name
from calibrant_server.workers.alarm.deliveries import (
    TEST,
    WAITING,
    WAS_ACKNOWLEDGED,
    WebhookDelivery,
)
from calibrant_server.workers.alarm.detectors import acknowledged, promoted
from calibrant_server.workers.alarm.episodes import OPEN
from calibrant_server.workers.ingest.entries import EntryError, IngestEntry
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.model_config import read_configs

MAX_DELIVERIES = 200
# By its operation `op`, a command has further fields: see the functions that return one.
Command = dict[str, Any]


def acknowledgement(alarm_id: str, by: str, note: str | None, role: str | None = None) -> Command:
    """Return the command to acknowledge an alarm."""
    return {"op": "acknowledge", "alarm": alarm_id, "by": by, "note": note, "role": role}


def promotion(map_version: str | None) -> Command:
    """Return the command to restart under another calibration map."""
    return {"op": "promote", "map_version": map_version}


def trial(about: str) -> Command:
    """Return the command to send a test to each receiver; `about` distinguishes tests."""
    return {"op": "test", "about": about}


def attempt(
    delivery: WebhookDelivery, at_s: float, status: int | None, error: str | None
) -> Command:
    """Return the command to record the outcome of a delivery attempt."""
    n = len(delivery.attempts)
    reported = {"n": n, "at_s": at_s, "status": status, "error": error}
    return {"op": "attempted", "delivery": delivery.id, "attempt": reported}


def write_order(
    node: Any, keys: PartitionKeys, entry: IngestEntry, commit: Commit, token: bytes
) -> None:
    """Write the effects of a command into the commit that consumes it; raise EntryError if it is not a command."""
    try:
        command: Command = json.loads(entry.payload)
        config = read_configs(node, keys.models, [entry.model]).get(entry.model)
        if config is None or config.generation != entry.generation:
            return
        if command["op"] not in _EFFECTS:
            raise EntryError(f"the command {command['op']!r} is not known")
        writing = AlarmCommit(commit, AlarmState(node, keys, config), token)
        _EFFECTS[command["op"]](node, writing, command)
    except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise EntryError(f"the command cannot be read: {error}") from error


def _acknowledge(node: Any, writing: AlarmCommit, command: Command) -> None:
    """Acknowledge an alarm: Before starts again at the start of the change. An alarm that is not open does not change."""
    episode = writing.alarm_state.episode(command["alarm"])
    if episode is None or episode.status != OPEN or episode.generation != writing.config.generation:
        return
    name = detector_name(episode.scope, episode.slice)
    detector = writing.alarm_state.detectors.get(name)
    if detector is not None and detector.episode == episode.id:
        writing.detectors({name: acknowledged(detector)})
    number = writing.alarm_state.next_number()
    by, note, role = command["by"], command["note"], command.get("role")
    writing.episode(episode.acknowledged(by, note, writing.now_s, number, role), WAS_ACKNOWLEDGED)


def _promote(node: Any, writing: AlarmCommit, command: Command) -> None:
    """Reset detectors of mapped scores under another calibration map and close their episodes."""
    settings, changed = writing.settings, {}
    active_map = promoted_map(node, writing.commit.keys, writing.config, command["map_version"])
    writing.set_active_map(active_map)
    for name, detector in writing.alarm_state.detectors.items() if settings.is_mapped else ():
        if detector.episode is not None:
            writing.close(detector.episode, "another calibration map is active")
        changed[name] = promoted(detector, settings, active_map)
    writing.detectors(changed)


def _test(node: Any, writing: AlarmCommit, command: Command) -> None:
    """Send a test message to each receiver."""
    writing.notify(TEST, command["about"], {"model": writing.config.model})


def _note_attempt(node: Any, writing: AlarmCommit, command: Command) -> None:
    """Write the outcome of a delivery attempt; the log keeps the latest 200 completed deliveries."""
    commit, keys, noted = writing.commit, writing.commit.keys, command["attempt"]
    text = node.hget(keys.deliveries, command["delivery"])
    delivery = None if text is None else WebhookDelivery.from_json(text)
    if delivery is None or len(delivery.attempts) != noted["n"]:
        return
    after = delivery.attempted(noted["at_s"], noted["status"], noted["error"])
    if after.status == WAITING:
        commit.set_fields(keys.deliveries, {after.id: after.to_json()})
        return
    done = keys.delivery_log(writing.config.key, writing.config.generation)
    log = [WebhookDelivery.from_json(each) for each in node.hvals(done)]
    commit.drop_fields(keys.deliveries, [after.id])
    commit.set_fields(done, {after.id: after.to_json()})
    surplus = len(log) + 1 - MAX_DELIVERIES
    if surplus > 0:
        oldest = sorted(log, key=lambda each: each.made_s)
        commit.drop_fields(done, [each.id for each in oldest[:surplus]])


_EFFECTS: dict[str, Callable[[Any, AlarmCommit, Command], None]] = {
    "acknowledge": _acknowledge,
    "promote": _promote,
    "test": _test,
    "attempted": _note_attempt,
}
