"""Changes of a model's alarm: detectors, cohort results, episodes, deliveries and gauges in one commit; and the commands that cause them.

Commands acknowledge an alarm, restart under another calibration map, send a test, or record a delivery attempt. They are entries
of the partition's stream, so each change goes through the fencing token. A repeated command changes nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any, TypedDict

from calibrant_server.workers.alarm.alarm_settings import AlarmSettings, promoted_map
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.cohorts import (
    CohortResult,
    detector_name,
    lost_cohorts,
    rater_in,
)
from calibrant_server.workers.alarm.deliveries import (
    RAISED,
    TEST,
    WAITING,
    WAS_ACKNOWLEDGED,
    WAS_CLOSED,
    WebhookDelivery,
    delivery_of,
)
from calibrant_server.workers.alarm.detectors import (
    Detector,
    acknowledged,
    n_requested,
    promoted,
    requested,
)
from calibrant_server.workers.alarm.episodes import CLOSED, OPEN, Episode, event_id, shown
from calibrant_server.workers.ingest.entries import EntryError, IngestEntry
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.key_names import ACTIVE_MAP, LAST_CHANGE, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig, read_configs

# What a notification states of each of its alarms.
OF_SCOPE = ("id", "scope", "slice", "calibration", "change", "effect")
MAX_DELIVERIES = 200
# By its operation `op`, a command has further fields: see the functions that return one.
Command = dict[str, Any]


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
    now_s: float = field(default_factory=lambda: time.time())

    @property
    def config(self) -> ModelConfig:
        return self.alarm_state.config

    @property
    def settings(self) -> AlarmSettings:
        return self.alarm_state.settings

    def detectors(self, changed: Mapping[str, Detector], **more: bytes) -> None:
        """Write detectors, further fields of their hash, and the version that results depend on."""
        key = self.commit.keys.detectors(self.config.key, self.config.generation)
        fields = {name: each.pack() for name, each in changed.items()}
        self.commit.set_fields(key, {**fields, **more, LAST_CHANGE: self.token})
        self.alarm_state.detectors.update(changed)
        self.commit.set_fields(
            self.commit.keys.summaries, {self.config.key: summary_of(self.alarm_state)}
        )

    def episode(self, episode: Episode, kind: str) -> None:
        """Write a change of an episode; if it stands for its event, notify all receivers, once per event."""
        self.commit.set_fields(self.commit.keys.episodes, episode.fields())
        if episode.leads:
            self.notify(kind, episode.event or episode.id, shown(episode))

    def raise_event(self, raised: Iterable[Episode]) -> list[Episode]:
        """Write the alarms that one cohort raised; return them, that of all rows first.

        An alarm whose change is that of an open alarm of the model belongs to its event; the others are a new one. A
        notification lists all alarms of the cohort and event. An event has one, and another when it reaches all rows.
        """
        ordered = sorted(raised, key=lambda each: (not each.is_of_all, -(each.evidence_log10 or 0.0), each.id))  # fmt: skip
        earlier = {each.id: self._open_event(each) for each in ordered}
        new = next((event_id(each) for each in ordered if earlier[each.id] is None), None)
        alarms = [replace(each, event=earlier[each.id] or new) for each in ordered]
        for event in dict.fromkeys(each.event for each in alarms):
            self._raise([each for each in alarms if each.event == event])
        return alarms

    def _raise(self, alarms: Sequence[Episode]) -> None:
        """Write alarms of one event, and notify if they lead it."""
        for each in alarms:
            self.commit.set_fields(self.commit.keys.episodes, each.fields())
        leading = shown(alarms[0], is_new=True)
        if alarms[0].leads:
            scopes = [{field: shown(each, is_new=True)[field] for field in OF_SCOPE} for each in alarms]  # fmt: skip
            self.notify(RAISED, f"{leading['event']}|{alarms[0].number}", {**leading, "scopes": scopes})  # fmt: skip

    def _open_event(self, alarm: Episode) -> str | None:
        """Return the event of an earlier open alarm whose range of DATE overlaps that of a new one."""
        found = self.alarm_state.detectors
        mine = found[detector_name(alarm.scope, alarm.slice)].change
        same = (each for each in found.values() if mine and each.change and mine.follows(each.change))  # fmt: skip
        episodes = (self.alarm_state.episode(each.episode or "") for each in same)
        return next((each.event for each in episodes if each is not None and each.event), None)

    def notify(self, kind: str, about: str, data: Mapping[str, Any]) -> None:
        """Enqueue a message to each receiver."""
        model, generation = self.config.key, self.config.generation
        for webhook in self.settings.webhooks:
            made = delivery_of(model, generation, webhook.url, kind, about, data, self.now_s)
            self.commit.set_fields(self.commit.keys.deliveries, {made.id: made.to_json()})

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


def summary_of(state: AlarmState) -> bytes:
    """Write the gauges of a model, so that reading them needs no detector."""
    scope, names = state.settings.scopes[0], requested(state.detectors, state.settings)
    found, main = state.detectors, state.detectors.get(detector_name(scope, ""))
    begun = [each for each in names if found[each].begun is not None and rater_in(each) is None]
    stored: AlarmSummary = {
        "generation": state.config.generation,
        "n_detectors": n_requested(found, state.settings) if found else 0,
        "n_alarms": sum(found[name].in_alarm for name in names),
        "first_cohort": None if main is None else main.begun,
        "cohort": None if main is None else main.last,
        "p": {name: found[name].p for name in begun},
        "scope": scope,
        "bins": [] if main is None else main.total.columns[:3].tolist(),
    }
    return json.dumps(stored, separators=(",", ":")).encode()


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
    reported = {"n": len(delivery.attempts), "at_s": at_s, "status": status, "error": error}
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
    """Acknowledge an alarm, and all of its event if it leads: Before starts again at the start of each change.

    An alarm that is not open does not change.
    """
    state = writing.alarm_state
    episode = state.episode(command["alarm"])
    if episode is None or episode.status != OPEN or episode.generation != writing.config.generation:
        return
    changed = {}
    for each in _acknowledged_with(state, episode):
        name = detector_name(each.scope, each.slice)
        detector = state.detectors.get(name)
        if detector is not None and detector.episode == each.id:
            changed[name] = acknowledged(detector, state.reference, writing.now_s)
        by, note, role = command["by"], command["note"], command.get("role")
        noted = each.acknowledged(by, note, writing.now_s, state.next_number(), role)
        writing.episode(noted, WAS_ACKNOWLEDGED)
    writing.detectors(changed)


def _acknowledged_with(state: AlarmState, episode: Episode) -> list[Episode]:
    """Return the open alarms that an acknowledgement of one concerns."""
    names = (each.episode for each in state.detectors.values() if each.in_alarm and each.episode)
    others = (state.episode(name) for name in names if episode.leads and name != episode.id)
    return [episode, *(each for each in others if each is not None and each.status == OPEN and each.event == episode.event)]  # fmt: skip


def _promote(node: Any, writing: AlarmCommit, command: Command) -> None:
    """Reset detectors of mapped scores under another calibration map and close their episodes."""
    state, changed = writing.alarm_state, {}
    version = command["map_version"]
    state.active_map = promoted_map(node, writing.commit.keys, state.config, version)
    because = (
        "no calibration map is active any more"
        if version is None
        else f"map {version} was promoted"
    )
    for name, detector in state.detectors.items() if state.settings.is_mapped else ():
        if detector.episode is not None:
            writing.close(detector.episode, because)
        changed[name] = promoted(detector, state.settings, state.active_map)
    writing.detectors(changed, **{ACTIVE_MAP: state.active_map.to_json()})


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
    done = keys.delivery_log(*after.of)
    log = sorted(map(WebhookDelivery.from_json, node.hvals(done)), key=lambda each: each.made_s)
    commit.drop_fields(keys.deliveries, [after.id])
    commit.set_fields(done, {after.id: after.to_json()})
    surplus = log[: max(0, len(log) + 1 - MAX_DELIVERIES)]
    if surplus:
        commit.drop_fields(done, [each.id for each in surplus])


_EFFECTS: dict[str, Callable[[Any, AlarmCommit, Command], None]] = {
    "acknowledge": _acknowledge,
    "promote": _promote,
    "test": _test,
    "attempted": _note_attempt,
}
