"""Commands about a model's alarm: their form in its partition's stream, and the call of their effects when a worker reads them.

They acknowledge an alarm, restart under another calibration map, send a test, or record a delivery attempt.
Because they are entries of the stream, each change goes through the fencing token. A repeated command changes nothing.
"""

from __future__ import annotations

import json
import time
from typing import Any

from calibrant_server.workers.alarm.active_map import promoted_map
from calibrant_server.workers.alarm.alarm_commit import AlarmCommit
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.command_effects import (
    acknowledge_alarm,
    note_attempt,
    promote_detectors,
    try_webhooks,
)
from calibrant_server.workers.alarm.deliveries import WebhookDelivery
from calibrant_server.workers.ingest.entries import EntryError, IngestEntry
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.model_config import read_configs

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
        writing = AlarmCommit(commit, config, AlarmState(node, keys, config), token, time.time())
        if command["op"] == "acknowledge":
            about = command["alarm"], command["by"], command["note"], command.get("role")
            acknowledge_alarm(writing, *about)
        elif command["op"] == "promote":
            promote_detectors(writing, promoted_map(node, keys, config, command["map_version"]))
        elif command["op"] == "test":
            try_webhooks(writing, command["about"])
        elif command["op"] == "attempted":
            _attempted(node, writing, command)
        else:
            raise EntryError(f"the command {command['op']!r} is not known")
    except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise EntryError(f"the command cannot be read: {error}") from error


def _attempted(node: Any, writing: AlarmCommit, command: Command) -> None:
    keys, config = writing.commit.keys, writing.config
    text = node.hget(keys.deliveries, command["delivery"])
    done = node.hgetall(keys.delivery_log(config.key, config.generation))
    log = {name.decode(): WebhookDelivery.from_json(each).made_s for name, each in done.items()}
    note_attempt(
        writing, None if text is None else WebhookDelivery.from_json(text), command["attempt"], log
    )
