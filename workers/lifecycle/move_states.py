"""States of a move of a model to another partition, and the entry that makes the model live there.

`T:mk` has the state by `tenant/model`. In the former partition: `out ID`, once everything accepted before is merged. In the
new one: `copying ID ATTEMPT`, `asked ID` once the entry is appended, `in ID` once it is consumed.
"""

from __future__ import annotations

import logging
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any

from calibrant_server.workers.alarm.episodes import LAST_NUMBER, Episode
from calibrant_server.workers.ingest.entries import MOVE_IN, MOVE_OUT, IngestEntry
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.keys import PartitionKeys, tenant_of, with_tenant
from calibrant_server.workers.store.model_config import LEFT, ModelConfig

log = logging.getLogger(__name__)

# A request that began before the move may read the former data this long: longer than any request takes.
LEFT_KEEP_S = 60
# Changes of alarms are numbered by partition. Those of this time get new numbers, so that clients that follow the events
# miss none; they may see one again.
RECENT_S = 86_400
# Names of `PartitionKeys` of the hashes whose fields come with the entry.
SHARED_HASHES = ("current_maps", "summaries", "deliveries", "unsealable", "partial_cohorts")


def new_move_id(former: int, to: int) -> str:
    """Return the id of a move; it names both partitions, so that a mover that continues knows the former one."""
    return f"{former}-{to}-{token_hex(6)}"


def former_of(move: str) -> int:
    """Return the former partition of a move."""
    return int(move.partition("-")[0])


def moved_out(move: str) -> str:
    """State of the former partition: everything is merged, and no worker changes the model any more."""
    return f"out {move}"


def asked(move: str) -> str:
    """State of the new partition: all is copied, and the entry that makes the model live is in the stream."""
    return f"asked {move}"


def moved_in(move: str) -> str:
    """State of the new partition: the model is live."""
    return f"in {move}"


@dataclass
class Arrival:
    """What of a model is in hashes and counters that it shares with others.

    Attributes
    ----------
    fields : by name of `PartitionKeys` in `SHARED_HASHES`
    episodes : as stored
    has_returned_days : whether something of its cold days came back to the store
    retained : retained records and their bytes
    id_bytes, event_bytes : bytes of batch records by expiry bucket, and of halves of inferences by minute
    ids_expire_ms, events_expire_ms : when the last of these are over
    """

    fields: dict[str, dict[str, bytes]] = field(default_factory=dict)
    episodes: list[str] = field(default_factory=list)
    has_returned_days: bool = False
    retained: dict[str, int] = field(default_factory=dict)
    id_bytes: dict[str, int] = field(default_factory=dict)
    event_bytes: dict[str, int] = field(default_factory=dict)
    ids_expire_ms: int = 0
    events_expire_ms: int = 0

    def order(self, move: str, config: ModelConfig, place: str) -> dict[str, Any]:
        """Return the content of the entry. `place` is what the directory says, empty if another partition is the home."""
        packed = {
            name: {key: b64encode(value).decode() for key, value in found.items()}
            for name, found in self.fields.items()
        }
        return {
            "op": MOVE_IN, "move": move, "config": config.to_json().decode(), "place": place,
            **vars(self), "fields": packed,
        }  # fmt: skip


def leaving(move: str) -> dict[str, Any]:
    """Return the content of the entry behind the last one of a model in its former partition."""
    return {"op": MOVE_OUT, "move": move}


def write_arrival(
    node: Any, keys: PartitionKeys, entry: IngestEntry, order: Mapping[str, Any], commit: Commit
) -> None:
    """Make a copied model live in a commit. An entry that does not belong to the last move here changes nothing."""
    move, model = str(order["move"]), entry.model
    state = node.hget(keys.moves, model)
    if state is None or state.decode() != asked(move):
        log.warning("move_ignored model=%s move=%s", model, move)
        return
    commit.set_fields(keys.models, {model: order["config"].encode()})
    commit.set_fields(keys.moves, {model: moved_in(move)})
    if order["place"]:
        commit.set_fields(keys.places, {model: order["place"]})
    else:
        commit.drop_fields(keys.places, [model])
    for name in SHARED_HASHES:
        found = {key: b64decode(text) for key, text in order["fields"].get(name, {}).items()}
        if found:
            commit.set_fields(getattr(keys, name), found)
    if order["has_returned_days"]:
        commit.add_member(keys.models_back, f"{model}|{entry.generation}")
    _write_episodes(node, keys, order["episodes"], commit)
    commit.add_numbers(keys.retained, with_tenant(model, order["retained"]))
    _count(keys.record_bytes, order["id_bytes"], commit)
    of_tenant = keys.record_bytes_of(tenant_of(model))
    _count(of_tenant, order["id_bytes"], commit, order["ids_expire_ms"])
    _count(keys.event_bytes, order["event_bytes"], commit, order["events_expire_ms"])


def _count(key: str, numbers: Mapping[str, int], commit: Commit, expires_ms: int = 0) -> None:
    if numbers:
        commit.add_numbers(key, numbers)
        if expires_ms:
            commit.expire_at(key, expires_ms)


def _write_episodes(node: Any, keys: PartitionKeys, texts: Sequence[str], commit: Commit) -> None:
    """Write episodes. Recent changes get the next numbers of this partition, in their order; others are behind every reader."""
    number, now_s = int(node.hget(keys.episodes, LAST_NUMBER) or 0), time.time()
    found: dict[str, bytes] = {}
    for each in _by_change(Episode.from_json(text) for text in texts):
        is_recent = each.changed_s > now_s - RECENT_S
        number += is_recent
        found[each.id] = replace(each, number=number if is_recent else 0).to_json()
    if found:
        commit.set_fields(keys.episodes, {**found, LAST_NUMBER: str(number).encode()})


def _by_change(episodes: Iterable[Episode]) -> list[Episode]:
    return sorted(episodes, key=lambda each: (each.number, each.changed_s))


def stub_of(config: ModelConfig) -> bytes:
    """Return the configuration that stays in the former partition until the data there are removed."""
    assert config.moving is not None
    move = {**config.moving, "stage": LEFT, "left_ms": int(time.time() * 1000)}
    return replace(config, moving=move).to_json()
