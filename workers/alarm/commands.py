"""Commands about a model's alarm, as entries of its partition's stream: acknowledge, promote, test, attempted.

Each change therefore goes through the fencing token. A repeated command changes nothing.
"""

from __future__ import annotations

import json
import time
from typing import Any

from calibrant_server.workers.alarm.active_map import promoted_map
from calibrant_server.workers.alarm.alarm_commit import Writing
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
from calibrant_server.workers.store.registry import read_configs

ACKNOWLEDGE, PROMOTE, TEST, ATTEMPTED = "acknowledge", "promote", "test", "attempted"


def acknowledgement(
    alarm_id: str, by: str, note: str | None, role: str | None = None
) -> dict[str, Any]:
    """Return the command to acknowledge an alarm."""
    return {"op": ACKNOWLEDGE, "alarm": alarm_id, "by": by, "note": note, "role": role}


def promotion(map_version: str | None) -> dict[str, Any]:
    """Return the command to restart under another calibration map."""
    return {"op": PROMOTE, "map_version": map_version}


def trial(about: str) -> dict[str, Any]:
    """Return the command to send a test to each receiver; `about` distinguishes tests."""
    return {"op": TEST, "about": about}


def attempt(
    delivery: WebhookDelivery, at_s: float, status: int | None, error: str | None
) -> dict[str, Any]:
    """Return the command to record the outcome of a delivery attempt."""
    reported = {"n": len(delivery.attempts), "at_s": at_s, "status": status, "error": error}
    return {"op": ATTEMPTED, "delivery": delivery.id, "attempt": reported}


def write_order(
    node: Any, keys: PartitionKeys, entry: IngestEntry, commit: Commit, token: bytes
) -> None:
    """Write the effects of a command into the commit that consumes it; raise EntryError if it is not a command."""
    try:
        order: dict[str, Any] = json.loads(entry.payload)
        config = read_configs(node, keys.models, [entry.model]).get(entry.model)
        if config is None or config.generation != entry.generation:
            return
        writing = Writing(commit, config, AlarmState(node, keys, config), token, time.time())
        if order["op"] == ACKNOWLEDGE:
            acknowledge_alarm(
                writing, order["alarm"], order["by"], order["note"], order.get("role")
            )
        elif order["op"] == PROMOTE:
            promote_detectors(writing, promoted_map(node, keys, config, order["map_version"]))
        elif order["op"] == TEST:
            try_webhooks(writing, order["about"])
        elif order["op"] == ATTEMPTED:
            _attempted(node, writing, order)
        else:
            raise EntryError(f"the command {order['op']!r} is not known")
    except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise EntryError(f"the command cannot be read: {error}") from error


def _attempted(node: Any, writing: Writing, order: dict[str, Any]) -> None:
    keys, config = writing.commit.keys, writing.config
    text = node.hget(keys.deliveries, order["delivery"])
    done = node.hgetall(keys.delivery_log(config.key, config.generation))
    log = {name.decode(): WebhookDelivery.from_json(each).made_s for name, each in done.items()}
    note_attempt(
        writing, None if text is None else WebhookDelivery.from_json(text), order["attempt"], log
    )
