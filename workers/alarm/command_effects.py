"""Effects of commands on a model's alarm, written into the commit that consumes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrant_server.workers.alarm.active_map import ActiveMap
from calibrant_server.workers.alarm.alarm_commit import AlarmCommit
from calibrant_server.workers.alarm.cohorts import detector_name
from calibrant_server.workers.alarm.deliveries import (
    TEST,
    WAITING,
    WAS_ACKNOWLEDGED,
    WebhookDelivery,
)
from calibrant_server.workers.alarm.detectors import acknowledged, promoted
from calibrant_server.workers.alarm.episodes import OPEN, Episode

MAX_DELIVERIES = 200


def acknowledge_alarm(
    writing: AlarmCommit,
    alarm_id: str,
    by: str,
    note: str | None,
    role: str | None = None,
) -> None:
    """Acknowledge an alarm: Before starts again at the start of the change. An alarm that is not open does not change."""
    episode = _open_episode(writing, alarm_id)
    if episode is None:
        return
    name = detector_name(episode.scope, episode.slice)
    detector = writing.alarm_state.detectors.get(name)
    if detector is not None and detector.episode == alarm_id:
        writing.detectors({name: acknowledged(detector)})
    number = writing.alarm_state.next_number()
    noted = episode.acknowledged(by, note, writing.now_s, number, role)
    writing.episode(noted, WAS_ACKNOWLEDGED)


def _open_episode(writing: AlarmCommit, alarm_id: str) -> Episode | None:
    """Return the alarm, if it is open and not acknowledged."""
    episode = writing.alarm_state.episode(alarm_id)
    if episode is None or episode.status != OPEN or episode.generation != writing.config.generation:
        return None
    return episode


def promote_detectors(writing: AlarmCommit, active_map: ActiveMap) -> None:
    """Reset detectors of mapped scores under another calibration map and close their episodes."""
    settings, changed = writing.settings, {}
    writing.set_active_map(active_map)
    for name, detector in writing.alarm_state.detectors.items() if settings.is_mapped else ():
        if detector.episode is not None:
            writing.close(detector.episode, "another calibration map is active")
        changed[name] = promoted(detector, settings, active_map)
    writing.detectors(changed)


def try_webhooks(writing: AlarmCommit, about: str) -> None:
    """Send a test message to each receiver."""
    writing.notify(TEST, about, {"model": writing.config.model})


def note_attempt(
    writing: AlarmCommit,
    delivery: WebhookDelivery | None,
    attempt: Mapping[str, Any],
    log: Mapping[str, float],
) -> None:
    """Write the outcome of a delivery attempt; `log` holds the time of each completed delivery by id."""
    if delivery is None or len(delivery.attempts) != attempt["n"]:
        return
    after = delivery.attempted(attempt["at_s"], attempt["status"], attempt["error"])
    commit, keys = writing.commit, writing.commit.keys
    if after.status == WAITING:
        commit.set_fields(keys.deliveries, {after.id: after.to_json()})
        return
    done = keys.delivery_log(writing.config.key, writing.config.generation)
    commit.drop_fields(keys.deliveries, [after.id])
    commit.set_fields(done, {after.id: after.to_json()})
    surplus = len(log) + 1 - MAX_DELIVERIES
    if surplus > 0:
        commit.drop_fields(done, sorted(log, key=lambda name: log[name])[:surplus])
