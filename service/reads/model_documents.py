"""Settings of a model as documents: to and from the configuration in the registry, changes, and merge patches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict

from calibrant.core.durations import duration_of, parse_duration
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.results.report import MULTILABEL
from calibrant_server.service.http.problem_responses import invalid_input
from calibrant_server.service.reads.alarms import hidden, newly_made, stored_alarm
from calibrant_server.service.reads.model_settings import ModelSettings, settings_of
from calibrant_server.service.security.keys import Caller
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.url_guard import Network
from calibrant_server.workers.store.model_config import LABEL_SLICE, ModelConfig
from calibrant_server.workers.store.model_events import checked_events, with_settings
from calibrant_server.workers.store.windows import rfc3339

GENERATION = re.compile(r"[0-9a-f]{12}")


class ExportLine(BaseModel):
    """One line; `type` names its content. The first is the `model`, the last the `end`."""

    model_config = ConfigDict(extra="allow")

    type: str


@dataclass(frozen=True)
class SettingsChange:
    """The configuration for the registry, and the receivers whose new secrets are returned once."""

    config: ModelConfig
    disclosed: frozenset[str]


def change_of(
    settings: ModelSettings,
    caller: Caller,
    model: str,
    current: ModelConfig | None,
    networks: Sequence[Network],
    reason: str | None = None,
) -> SettingsChange:
    """Return a model's configuration for the registry; `networks` are where receivers of alarms may be.

    Changes of the tolerance and of the label horizon become dated events, with the `reason` of a patch.
    """
    config = config_of(settings, caller, model)
    _check_retention(config, current)
    try:
        alarm = stored_alarm(settings.alarm, config, current, networks)
    except CalibrationInputError as error:
        raise invalid_input(error.violations) from error
    found = replace(config, alarm=alarm, events=[] if current is None else current.events)
    if current is not None:
        name = caller.name or caller.key_id
        by = f"by {name}" if name else "without a key"
        about = by if reason is None else f"{by}, {reason}"
        found = with_settings(found, _verdict_changes(current, found), about, datetime.now(UTC))
    return SettingsChange(found, newly_made(settings.alarm, current))


def _check_retention(wanted: ModelConfig, current: ModelConfig | None) -> None:
    """Reject a retention that drops each day before it is sealed; one that a model has already stays."""
    pair = (wanted.retention_s, wanted.label_horizon_s)
    if current is not None and pair == (current.retention_s, current.label_horizon_s):
        return
    retention_s, horizon_s = pair
    if retention_s is None or horizon_s is None or retention_s > horizon_s:
        return
    detail = (
        f"Received the retention {duration_of(retention_s)} with the label_horizon {duration_of(horizon_s)}; expected a longer "
        "retention: days would be dropped before the alarm evaluates them. Set a longer retention or a shorter label_horizon."
    )
    raise invalid_input([Violation("/retention", "before_horizon", detail)])


def _verdict_changes(current: ModelConfig, wanted: ModelConfig) -> list[str]:
    """Return the changes of what a verdict depends on, in words; not its first declaration."""
    before, after = AlarmSettings.of(current).tolerance, AlarmSettings.of(wanted).tolerance
    found = [f"tolerance {before:g} → {after:g}"] if before != after else []
    horizons = current.label_horizon_s, wanted.label_horizon_s
    if horizons[0] is not None and horizons[0] != horizons[1]:
        texts = ("none" if each is None else duration_of(each) for each in horizons)
        found.append(f"label_horizon {' → '.join(texts)}")
    return found


def config_of(settings: ModelSettings, caller: Caller, model: str) -> ModelConfig:
    """Return a model's configuration as declared, without its alarm."""

    def seconds(text: str | None) -> int | None:
        return None if text is None else int(parse_duration(text))

    labels = settings.label_names
    names = settings.classes if isinstance(settings.classes, list) else None
    config = ModelConfig(
        tenant=caller.tenant,
        model=model,
        task=settings.task if labels is None else "binary",
        n_classes=2 if labels or settings.n_classes is None else settings.n_classes,
        classes=names if labels is None else None,
        label_names=labels,
        grid=settings.grid,
        pane_s=int(parse_duration(settings.pane)),
        retention_s=seconds(settings.retention),
        label_horizon_s=seconds(settings.label_horizon),
        slices=settings.slices | ({} if labels is None else {LABEL_SLICE: labels}),
        unit=settings.unit,
        listed_classes=settings.listed_classes,
        composites=_composites(settings),
        cloudevents=None if settings.cloudevents is None else settings.cloudevents.model_dump(),
        mode=settings.mode,
        tags=settings.tags,
    )
    config.spec()  # raises if no panes can be made of this
    return config


def _composites(settings: ModelSettings) -> dict[str, list[int]] | None:
    """Return the composites by class index, or raise for a class name that is not declared."""
    if not settings.composites:
        return None
    names = settings.classes if isinstance(settings.classes, list) else []
    found: dict[str, list[int]] = {}
    for composite, members in settings.composites.items():
        for i, member in enumerate(members):
            if isinstance(member, str) and member not in names:
                detail = f"Received class {member[:60]!r}; expected a declared class or its index."
                raise CalibrationInputError.at(
                    f"/composites/{composite}/{i}", "unknown_class", detail
                )
        found[composite] = [names.index(k) if isinstance(k, str) else k for k in members]
    return found


def declared(config: ModelConfig) -> dict[str, Any]:
    """Return the settings document that declares `config`."""

    def text(seconds: int | None) -> str | None:
        return None if seconds is None else duration_of(seconds)

    return {
        "task": MULTILABEL if config.label_names else config.task,
        "classes": config.label_names or config.classes or config.n_classes,
        "grid": config.grid,
        "pane": duration_of(config.pane_s),
        "retention": text(config.retention_s),
        "label_horizon": text(config.label_horizon_s),
        "slices": own_slices(config),
        "unit": config.unit,
        "listed_classes": config.listed_classes,
        "composites": config.composites,
        "alarm": _named_classes(config),
        "cloudevents": config.cloudevents,
        "mode": config.mode,
        "tags": config.tags,
    }


def own_slices(config: ModelConfig) -> dict[str, list[str] | None]:
    """Return the declared slices; the labels of a multi-label model are declared as its classes."""
    labels = {LABEL_SLICE} if config.label_names else set()
    return {key: values for key, values in config.slices.items() if key not in labels}


MAX_CHANGE_CHARACTERS = 2000


def changes_between(current: ModelConfig, wanted: ModelConfig) -> dict[str, Any]:
    """Return each setting that differs, as `from` and `to`; settings of the alarm by name, without secrets and paths of URLs.

    A value that is too long for the audit log is left out.
    """
    before, after = _flat(current), _flat(wanted)
    changed = {}
    for name in sorted(before.keys() | after.keys()):
        pair = {"from": before.get(name), "to": after.get(name)}
        if pair["from"] != pair["to"]:
            short = len(orjson.dumps(pair)) <= MAX_CHANGE_CHARACTERS
            changed[name] = pair if short else {"from": None, "to": None, "reason": "too long"}
    return changed


def _flat(config: ModelConfig) -> dict[str, Any]:
    settings = declared(config)
    alarm = hidden(settings.pop("alarm"), with_full_urls=False)
    return settings | {f"alarm.{name}": value for name, value in alarm.items()}


def _named_classes(config: ModelConfig) -> dict[str, Any]:
    """Return the alarm's settings with the declared class names."""
    bets = config.alarm.get("bets")
    if not isinstance(bets, list) or not config.classes:
        return config.alarm
    return {**config.alarm, "bets": [config.classes[index] for index in bets]}


def shown(
    config: ModelConfig, disclosed: frozenset[str] = frozenset(), with_full_urls: bool = True
) -> dict[str, Any]:
    """Return a model for a response: secrets hidden, except of receivers in `disclosed`; URLs in full or by host; no empty tags."""
    document = declared(config)
    if not config.tags:
        del document["tags"]
    return {
        "model": config.model,
        **document,
        "alarm": hidden(document["alarm"], disclosed, with_full_urls),
        "classes": config.label_names or config.classes,
        "n_classes": len(config.label_names or ()) or config.n_classes,
        "revision": config.revision,
        "created_at": rfc3339(config.created_at) if config.created_at else None,
    }


def redeclared(config: ModelConfig) -> ModelConfig:
    """Return an imported configuration; reject settings that violate the rules of declared models.

    Raises
    ------
    InvalidInput, CalibrationInputError, ValueError, TypeError
        A rule is violated; or generation and revision, which name the state, are not values of a registry.
    """
    if not GENERATION.fullmatch(config.generation):
        raise ValueError("received another generation; expected twelve hexadecimal digits")
    if type(config.revision) is not int or not 1 <= config.revision < 2**31:
        raise ValueError("received another revision; expected an integer from 1")
    settings = settings_of(declared(config))
    made = config_of(settings, Caller(config.tenant, frozenset()), config.model)
    names = (
        "task",
        "n_classes",
        "classes",
        "grid",
        "pane_s",
        "retention_s",
        "label_horizon_s",
        "slices",
        "unit",
        "cloudevents",
        "mode",
        "tags",
        "label_names",
    )
    checked = {name: getattr(made, name) for name in (*names, "listed_classes", "composites")}
    alarm, events = stored_alarm(settings.alarm, made, None), checked_events(config.events)
    return replace(config, **checked, alarm=alarm, events=events)


def patched(document: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return `document` after a merge patch: null removes a member, an object is merged into its member."""
    merged = dict(document)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict) and isinstance(merged.get(name), dict):
            merged[name] = patched(merged[name], value)
        else:
            merged[name] = value
    return merged
