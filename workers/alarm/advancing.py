"""A sealed cohort, and every order about a model's alarm, written into the commit that they belong to.

Everything here only adds to a commit: detectors, looks, episodes and deliveries change together with what sealed the
cohort (or consumed the order), or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from calibrant.drift.action import recommended_action
from calibrant.drift.detector import acknowledge
from calibrant.drift.effect import effect, worst_bins
from calibrant.drift.tables import UnitTable, merged
from calibrant.pane import Pane
from workers.alarm.deliveries import (
    RAISED,
    TEST,
    WAITING,
    WAS_ACKNOWLEDGED,
    WAS_CLOSED,
    Delivery,
    delivery_of,
)
from workers.alarm.detectors import (
    Cohort,
    Detector,
    Look,
    advanced,
    detector_name,
    look_of,
    lost_looks,
    parts_of,
    promoted,
    tables_of,
    watched,
)
from workers.alarm.episodes import (
    CLOSED,
    LAST_NUMBER,
    OPEN,
    Episode,
    at,
    episode_id,
    log10_of,
    shown,
)
from workers.alarm.held import Held
from workers.alarm.settings import AlarmSettings
from workers.state.commit import Commit
from workers.state.keys import LAST_CHANGE
from workers.state.registry import ModelConfig

KEPT_DELIVERIES = 200


@dataclass(frozen=True)
class Writing:
    """A commit in which a model's alarm changes, its token and the clock."""

    commit: Commit
    config: ModelConfig
    held: Held
    token: bytes
    now_s: float

    @property
    def settings(self) -> AlarmSettings:
        return AlarmSettings.of(self.config)

    def detectors(self, changed: Mapping[str, Detector]) -> None:
        """Write detectors and the version that answers rest on."""
        key = self.commit.keys.detectors(self.config.key, self.config.generation)
        fields: dict[str, bytes] = {name: each.pack() for name, each in changed.items()}
        self.commit.set_fields(key, {**fields, LAST_CHANGE: self.token})
        self.held.detectors.update(changed)
        summary = summary_of(self.config, self.settings, self.held.detectors)
        self.commit.set_fields(self.commit.keys.summaries, {self.config.key: summary})

    def episode(self, episode: Episode, kind: str) -> None:
        """Write a change of an episode, and have everybody told."""
        fields = {episode.id: episode.to_json(), LAST_NUMBER: str(episode.number)}
        self.commit.set_fields(self.commit.keys.episodes, fields)
        self.tell(kind, f"{episode.id}|{episode.number}", shown(episode))

    def tell(self, kind: str, about: str, data: Mapping[str, Any]) -> list[str]:
        """Have a message delivered to every receiver; returns the ids."""
        made = [
            delivery_of(
                self.config.key, self.config.generation, webhook.url, kind, about, data, self.now_s, at(self.now_s)
            )
            for webhook in self.settings.webhooks
        ]
        for each in made:
            self.commit.set_fields(self.commit.keys.deliveries, {each.id: each.to_json()})
        return [each.id for each in made]


def advance_detectors(
    commit: Commit,
    config: ModelConfig,
    cohort: int,
    panes_by_slice: Mapping[str, Pane],
    held_states: Held,
    *,
    token: bytes,
    now_s: float,
) -> list[Episode]:
    """Let the detectors of a model see a cohort that is sealed in this commit.

    Parameters
    ----------
    commit : that seals the cohort
    config : the model, with a label horizon
    cohort : its start in seconds since the epoch; cohorts come in order, and one that came before changes nothing
    panes_by_slice : the sealed panes of the cohort merged, `""` for all rows
    held_states : what stands in the store
    token : of the commit
    now_s : the clock

    Returns
    -------
    alarms that went off.
    """
    writing = Writing(commit, config, held_states, token, now_s)
    return advance_cohort(writing, cohort, tables_of(writing.settings, cohort, panes_by_slice))


def advance_cohort(
    writing: Writing, start_s: int, cohorts: Mapping[str, Cohort]
) -> list[Episode]:
    """As `advance_detectors`, from the tables by detector."""
    settings, held = writing.settings, writing.held
    names = watched(held.detectors, cohorts)
    threshold = settings.threshold(max(1, len(names)))
    changed: dict[str, Detector] = {}
    raised: list[Episode] = []
    for name in names:
        before = held.detectors.get(name) or Detector.begin(settings)
        if name not in cohorts or (before.last is not None and start_s <= before.last):
            continue
        after = advanced(before, cohorts[name], settings, threshold)
        look = look_of(after, cohorts[name], threshold)
        if before.episode is not None and after.episode is None:
            _close(writing, before.episode, "the settings of the alarm changed")
        if after.state is not None and after.state.alarmed_at == start_s:
            if after.episode is not None:
                _close(writing, after.episode, "the alarm went off again")
            episode = _raised(writing, name, after, [*held.looks(name), look], threshold)
            writing.episode(episode, RAISED)
            after = replace(after, episode=episode.id)
            raised.append(episode)
        _write_look(writing, name, before.last, look)
        changed[name] = after
    if changed:
        writing.detectors(changed)
    return raised


def _write_look(writing: Writing, name: str, last: int | None, look: Look) -> None:
    config = writing.config
    key = writing.commit.keys.looks(config.key, config.generation, name)
    writing.commit.set_fields(key, {str(look.cohort): look.pack()})
    writing.held.note(name, look)
    lost = lost_looks(name, last, look.cohort, writing.settings.bucket_s)
    if lost:
        writing.commit.drop_fields(key, [str(start) for start in lost])


def _raised(
    writing: Writing, name: str, detector: Detector, looks: list[Look], threshold: float
) -> Episode:
    state, config, settings = detector.state, writing.config, writing.settings
    assert state is not None
    scope, slice_ = parts_of(name)
    cohort, start = int(state.alarmed_at or 0), state.start_of_change
    since = since_change(looks, start, cohort)[0]
    return Episode(
        id=episode_id(writing.commit.keys.partition, config.key, config.generation, name, cohort),
        tenant=config.tenant,
        model=config.model,
        generation=config.generation,
        scope=scope,
        slice=slice_,
        status=OPEN,
        number=writing.held.next_number(),
        cohort=cohort,
        bucket_s=settings.bucket_s,
        start_of_change=start,
        evidence_log10=log10_of(state.log_mixed_evidence),
        sr_log10=log10_of(state.log_mixed_sr),
        threshold=threshold,
        effect=effect(since) | {"worst_bins": worst_bins(since)},
        recommended_action=recommended_action(since, None, state.tolerance),
        map_version=detector.map_version,
        raised_s=writing.now_s,
        changed_s=writing.now_s,
    )


def since_change(looks: list[Look], start: int | None, until: int | None) -> tuple[UnitTable, UnitTable]:
    """The cohorts from the start of a change until the alarm, and those after it."""
    begun = [look for look in looks if start is None or look.cohort >= start]
    first = [look.table for look in begun if until is None or look.cohort <= until]
    later = [look.table for look in begun if until is not None and look.cohort > until]
    return merged(first), merged(later)


def _close(writing: Writing, alarm_id: str, because: str) -> None:
    episode = writing.held.episode(alarm_id)
    if episode is not None and episode.status != CLOSED:
        number = writing.held.next_number()
        writing.episode(episode.closed(because, writing.now_s, number), WAS_CLOSED)


def acknowledge_alarm(writing: Writing, alarm_id: str, by: str, note: str | None) -> None:
    """Take note of an alarm: its detector watches for change anew. An alarm that is not open stays as it is."""
    episode = writing.held.episode(alarm_id)
    if episode is None or episode.status != OPEN or episode.generation != writing.config.generation:
        return
    name = detector_name(episode.scope, episode.slice)
    detector = writing.held.detectors.get(name)
    if detector is not None and detector.state is not None and detector.episode == alarm_id:
        writing.detectors({name: replace(detector, state=acknowledge(detector.state))})
    number = writing.held.next_number()
    writing.episode(episode.acknowledged(by, note, writing.now_s, number), WAS_ACKNOWLEDGED)


def promote_detectors(writing: Writing, map_version: str | None) -> None:
    """Begin anew under another calibration map: every detector has seen nothing, episodes are closed."""
    changed = {}
    for name, detector in writing.held.detectors.items():
        if detector.episode is not None:
            _close(writing, detector.episode, "another calibration map is in force")
        changed[name] = promoted(detector, writing.settings, map_version)
    writing.detectors(changed)


def try_webhooks(writing: Writing, about: str) -> None:
    """Send a message to every receiver that tells nothing but that it arrives."""
    writing.tell(TEST, about, {"model": writing.config.model})


def note_attempt(
    writing: Writing, delivery: Delivery | None, attempt: Mapping[str, Any], log: Mapping[str, float]
) -> None:
    """Write what became of an attempt to deliver; `log` holds the time of every delivery that is done, by id."""
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
    surplus = len(log) + 1 - KEPT_DELIVERIES
    if surplus > 0:
        commit.drop_fields(done, sorted(log, key=lambda name: log[name])[:surplus])


def summary_of(
    config: ModelConfig, settings: AlarmSettings, detectors: Mapping[str, Detector]
) -> bytes:
    """What meters show of a model, so that they need no detector."""
    main = detectors.get(detector_name(settings.scopes[0], ""))
    state = None if main is None else main.state
    kept: dict[str, Any] = {
        "generation": config.generation,
        "n_detectors": len(detectors),
        "n_alarms": sum(d.state is not None and d.state.alarmed_at is not None for d in detectors.values()),
        "threshold": settings.threshold(max(1, len(detectors))),
        "evidence_log10": None if state is None else log10_of(state.log_mixed_evidence),
        "sr_log10": None if state is None else log10_of(state.log_mixed_sr),
        "cohort": None if main is None else main.last,
        "scope": settings.scopes[0],
        "bins": [] if main is None else main.total.columns[:3].tolist(),
    }
    return json.dumps(kept, separators=(",", ":")).encode()


