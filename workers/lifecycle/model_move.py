"""Move of a model to another partition, while it is in use.

1. The configuration says that the model is being moved, and an entry follows the last accepted one in the stream. From then on batches
   and changes of the model get the store's error MOVING, which callers repeat: clients wait, or get 503 with Retry-After. Reads go on.
2. The worker of the former partition merges what is before the entry. The commit that consumes the entry ends the model there: no
   later commit changes it, because the token chain has moved on and the worker leaves models alone that are being moved.
3. The keys are copied (`model_copy.py`).
4. An entry in the new partition has the rest: the configuration, and what models share. The commit that consumes it makes the model live.
5. The home names the new partition. One script ends the model in the former one.
6. The worker of the former partition removes the data there a minute later, when no request reads them any more.

Each step may be repeated, and is decided by what the store says. A mover that was killed is started again and continues; before step 4
it may also give up. Two movers do not disturb each other: an attempt that was overtaken can write nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any

from redis.exceptions import OutOfMemoryError

from calibrant_server.workers.alarm.deliveries import WebhookDelivery
from calibrant_server.workers.alarm.episodes import LAST_NUMBER
from calibrant_server.workers.ingest.dead_letters import dead_letters
from calibrant_server.workers.ingest.entries import IngestEntry, move_order
from calibrant_server.workers.lifecycle.model_copy import ModelCopy, OvertakenMove
from calibrant_server.workers.lifecycle.move_states import (
    Arrival,
    asked,
    former_of,
    leaving,
    moved_in,
    moved_out,
    new_move_id,
    stub_of,
)
from calibrant_server.workers.store.batch_records import expiry_bucket_s
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.model_config import (
    ARRIVING,
    DRAINING,
    ModelConfig,
    parsed_config,
)
from calibrant_server.workers.store.model_places import moves_in, partition_in

# Batches are rejected while what waits before them is merged: it should be little.
MAX_WAITING_BYTES = 1 << 20
_POLL_S = 0.02
_EVENTS_KEPT_MS = 300_000
# Batches that were not merged, as named in an error.
MAX_NAMED = 20


class MoveRejected(RuntimeError):
    """The model cannot be moved as asked; nothing has changed."""


class MoveInterrupted(RuntimeError):
    """The move has not ended; the same command continues it."""


@dataclass(frozen=True)
class MoveResult:
    """A move that has ended. `frozen_s`: how long no batch was accepted, as this mover saw it."""

    model: str
    former: int
    to: int
    n_keys: int = 0
    n_bytes: int = 0
    frozen_s: float = 0.0


@dataclass(frozen=True)
class _Found:
    keys: PartitionKeys
    text: bytes
    config: ModelConfig

    @property
    def move(self) -> str:
        return str((self.config.moving or {})["id"])


class ModelMove:
    """Mover of one model.

    Parameters
    ----------
    patience_s : how long to wait for workers in each step
    on_step : called before each step with its name
    """

    def __init__(
        self,
        store: Store,
        model: str,
        patience_s: float = 60.0,
        on_step: Callable[[str], None] = lambda step: None,
    ):
        self._store, self._model = store, model
        self._patience_s, self._on_step = patience_s, on_step
        self._copied: ModelCopy | None = None
        self._frozen_at: float | None = None

    def run(self, to: int) -> MoveResult:
        """Move the model, or continue its move, wherever that goes to.

        Raises
        ------
        MoveRejected, MoveInterrupted, OvertakenMove
        """
        found = self._end_former_move()
        if found.config.moving is None:
            if found.keys.partition == to:
                return MoveResult(self._model, to, to)
            self._check(found, to)
            self._await_quiet(found.keys)
            self._begin(found, to)
            found = self._found()
        if found.config.moving is None:
            raise MoveInterrupted("the move was cancelled meanwhile")
        self._frozen_at = time.monotonic()
        return self._continue(found)

    def cancel(self) -> bool:
        """Give up a move that has begun; return whether there was one.

        Raises
        ------
        MoveRejected
            Everything is copied: it can only be completed.
        """
        found = self._found()
        if found.config.moving is None:
            return False
        if found.config.moving["stage"] != DRAINING:
            raise MoveRejected("the model is copied: run the command without --cancel")
        target = self._target(found)
        state = self._begin_copy(found, target)
        self._change(found, replace(found.config, moving=None))
        self._copy_of(found, target, state).clear()
        return True

    def _continue(self, found: _Found) -> MoveResult:
        target = self._target(found)
        state = self._state(target)
        if state not in (asked(found.move), moved_in(found.move)):
            self._drain(found)
            # A server that is replaced by its replica must not accept batches of the model again.
            self._store.await_replica(found.keys.partition)
            state = self._copy_all(found, target)
            found = self._change(found, _at_stage(found.config, ARRIVING))
            state = self._hand_over(found, target, state)
        self._step("arrive")
        self._await(lambda: self._state(target) == moved_in(found.move), "make the model live")
        # From here on, this is the only copy.
        self._store.await_durable(target.partition)
        self._switch(found, target)
        copied, frozen_s = self._copied, time.monotonic() - (self._frozen_at or time.monotonic())
        sizes = (copied.n_keys, copied.n_bytes) if copied else (0, 0)
        return MoveResult(self._model, found.keys.partition, target.partition, *sizes, frozen_s)

    def _end_former_move(self) -> _Found:
        """Return the model; complete its last move first, if that has only its last step left."""
        keys = self._place_in_home()
        state = self._state(keys)
        if state.startswith("in "):
            former = self._store.keys.partition(former_of(state.removeprefix("in ")))
            left = self._read(former)
            if left is not None and not left.config.has_left and state == moved_in(left.move):
                self._switch(left, keys)
        return self._found()

    def _check(self, found: _Found, to: int) -> None:
        if not 0 <= to < self._store.settings.partitions:
            raise MoveRejected(
                f"the store has partitions 0 to {self._store.settings.partitions - 1}"
            )
        if found.config.has_sides:
            raise MoveRejected("the model has, or had, `fill_partitions` above 1: it stays")
        if found.config.importing is not None:
            raise MoveRejected("the import of the model is not complete")
        if self._read(self._store.keys.partition(to)) is not None:
            raise MoveRejected(
                f"the data that the model left in partition {to} are still being removed: try again in two minutes"
            )
        self._check_letters(found)

    def _check_letters(self, found: _Found) -> None:
        name = (self._model, found.config.generation)
        letters = dead_letters(self._store, found.keys.partition)
        names = [
            f"{each.partition}:{each.id}"
            for each in letters
            if (each.model, each.generation) == name
        ]
        if names:
            raise MoveRejected(_left_behind(names))

    def _await_quiet(self, keys: PartitionKeys) -> None:
        def waiting() -> int:
            node = self._store.node(keys.partition)
            return int(node.get(keys.bytes_in) or 0) - int(node.hget(keys.cursor, "out") or 0)

        self._step("wait")
        until = time.monotonic() + self._patience_s
        while waiting() > MAX_WAITING_BYTES:
            if time.monotonic() > until:
                raise MoveRejected("too much waits to be merged in the partition: try again later")
            time.sleep(_POLL_S)

    def _begin(self, found: _Found, to: int) -> None:
        self._step("begin")
        move = new_move_id(found.keys.partition, to)
        moving = {"id": move, "since_ms": int(time.time() * 1000), "stage": DRAINING, "to": to}
        # A model that was made again counts from 0, but its home knows the moves of the one before: the place must be later.
        moves = max(found.config.moves, moves_in(self._home_entry()))
        self._change(found, replace(found.config, moves=moves, moving=moving), leaving(move))

    def _drain(self, found: _Found) -> None:
        """Wait until everything accepted is merged; give up if that takes too long, or leaves dead letters."""
        self._step("drain")
        is_merged = moved_out(found.move)
        try:
            self._await(lambda: self._state(found.keys) == is_merged, "merge what was accepted")
            self._check_letters(found)
        except (MoveInterrupted, MoveRejected):
            if (found.config.moving or {})["stage"] == DRAINING:
                self.cancel()
            raise

    def _copy_all(self, found: _Found, target: PartitionKeys) -> str:
        self._step("copy")
        state = self._begin_copy(found, target)
        if state.startswith("copying "):
            self._copied = self._copy_of(found, target, state)
            try:
                self._copied.run()
            except OutOfMemoryError as error:
                if (found.config.moving or {})["stage"] != DRAINING:
                    raise
                self.cancel()
                raise MoveRejected("the store has no room for the copy: the model stays") from error
        return state

    def _hand_over(self, found: _Found, target: PartitionKeys, state: str) -> str:
        """Append the entry that makes the model live."""
        if not state.startswith("copying "):
            return state
        self._step("hand over")
        home = self._store.keys.partition_of(self._model)
        place = _place(found.config, target) if home == target.partition else ""
        config = replace(
            found.config, partition=target.partition, moves=found.config.moves + 1, moving=None
        )
        order = self._arrival(found).order(found.move, config, place)
        entry = move_order(self._model, found.config.generation, order)
        names = [target.moves, target.stream, target.bytes_in]
        values = [self._model, state, asked(found.move), *_fields(entry)]
        now = self._store.run(target.partition, "hand_over", names, values)
        if now.decode() not in (asked(found.move), moved_in(found.move)):
            raise OvertakenMove(self._model)
        return str(now.decode())

    def _switch(self, found: _Found, target: PartitionKeys) -> None:
        """Name the new partition in the home, and end the model in the former one.

        What a request reads that has found the model there stays: panes, its files of cold days, and its current map.
        """
        self._step("name")
        if self._has_left(found, target):
            return
        home = self._store.keys.of_model(self._model)
        values = [self._model, target.partition, found.config.moves + 1]
        # Before the model ends in the former partition: without this entry nobody would find it in the new one.
        self._store.run_confirmed(home.partition, "set_place", [home.places], values)
        self._step("leave")
        self._leave(found, target)

    def _has_left(self, found: _Found, target: PartitionKeys) -> bool:
        """Whether another mover has done the rest."""
        now = self._read(found.keys)
        if now is not None and now.text == found.text:
            return False
        is_done = now is None or now.config.has_left
        if is_done and self._place_in_home().partition == target.partition:
            return True
        raise MoveInterrupted("the former partition has changed: its store has lost writes")

    def _leave(self, found: _Found, target: PartitionKeys) -> None:
        keys, of = found.keys, (self._model, found.config.generation)
        arrival = self._arrival(found)
        named = "|".join(of)
        shared: list[tuple[str, list[Any]]] = [
            (getattr(keys, name), list(fields))
            for name, fields in arrival.fields.items()
            if name != "current_maps"
        ]
        shared.append((keys.episodes, [json.loads(each)["id"] for each in arrival.episodes]))
        shared.append((keys.statuses, [self._model]))
        names = [keys.models, keys.places, keys.models_back]
        fields = [part for _, each in shared for part in (len(each), *each)]
        self._store.run(
            keys.partition,
            "leave_partition",
            [*names, *(key for key, _ in shared)],
            [self._model, found.text, stub_of(found.config), _place(found.config, target), named, *fields],
        )  # fmt: skip

    def _arrival(self, found: _Found) -> Arrival:
        """Read what of the model is in hashes that it shares with others; nothing changes it now."""
        node, keys, config = self._store.node(found.keys.partition), found.keys, found.config
        of = (self._model, config.generation)
        named = "|".join(of)
        shared = {
            "current_maps": {self._model: node.hget(keys.current_maps, self._model)},
            "summaries": {self._model: node.hget(keys.summaries, self._model)},
            "unsealable": {named: node.hget(keys.unsealable, named)},
            "partial_cohorts": {named: node.hget(keys.partial_cohorts, named)},
        }
        fields = {
            name: {key: value for key, value in each.items() if value is not None}
            for name, each in shared.items()
        }
        waiting = map(WebhookDelivery.from_json, node.hvals(keys.deliveries))
        mine = [each.id for each in waiting if (each.model, each.generation) == of]
        texts = node.hmget(keys.deliveries, mine) if mine else []
        fields["deliveries"] = dict(zip(mine, texts, strict=True))
        retained = node.hmget(keys.tallies(*of), "records", "bytes")
        copied, now_ms = self._copied, int(time.time() * 1000)
        ttl_s = self._store.settings.idempotency_ttl_s
        return Arrival(
            fields=fields,
            episodes=self._episodes(found),
            has_returned_days=bool(node.sismember(keys.models_back, named)),
            retained=dict(zip(("records", "bytes"), (int(n or 0) for n in retained), strict=True)),
            id_bytes=dict(copied.id_bytes) if copied else {},
            event_bytes=dict(copied.event_bytes) if copied else {},
            ids_expire_ms=now_ms + (ttl_s + expiry_bucket_s(ttl_s)) * 1000,
            events_expire_ms=now_ms + _EVENTS_KEPT_MS,
        )

    def _episodes(self, found: _Found) -> list[str]:
        stored = self._store.node(found.keys.partition).hgetall(found.keys.episodes)
        of = (found.config.tenant, found.config.model, found.config.generation)
        every = [text.decode() for name, text in stored.items() if name != LAST_NUMBER.encode()]
        return [
            text
            for text in every
            if tuple(json.loads(text)[name] for name in ("tenant", "model", "generation")) == of
        ]

    def _target(self, found: _Found) -> PartitionKeys:
        return self._store.keys.partition(int((found.config.moving or {})["to"]))

    def _copy_of(self, found: _Found, target: PartitionKeys, state: str) -> ModelCopy:
        generation = found.config.generation
        return ModelCopy(self._store, found.keys, target, self._model, generation, state.encode())

    def _begin_copy(self, found: _Found, target: PartitionKeys) -> str:
        """Begin an attempt, and end all others; return the state of the move."""
        values = [self._model, found.move, token_hex(6)]
        state = self._store.run(target.partition, "begin_copy", [target.moves], values)
        return str(state.decode())

    def _change(
        self, found: _Found, config: ModelConfig, order: dict[str, Any] | None = None
    ) -> _Found:
        """Write the next configuration, maybe with an entry, unless somebody else has changed it."""
        entry = [] if order is None else _fields(move_order(self._model, config.generation, order))
        keys, text = found.keys, config.to_json()
        names = [keys.models, keys.stream, keys.bytes_in]
        values = [self._model, found.text, text, *(entry or [0])]
        reply = self._store.run(keys.partition, "change_move", names, values)
        if not reply[0]:
            raise MoveInterrupted("the model was changed by another request")
        return _Found(keys, text, config)

    def _found(self) -> _Found:
        """Return the model where its home says that it is."""
        found = self._read(self._place_in_home())
        if found is None:
            raise MoveRejected(f"there is no model {self._model}")
        return found

    def _place_in_home(self) -> PartitionKeys:
        place = partition_in(self._home_entry())
        if place is None:
            return self._store.keys.of_model(self._model)
        return self._store.keys.partition(place)

    def _home_entry(self) -> bytes | None:
        home = self._store.keys.of_model(self._model)
        found: bytes | None = self._store.node(home.partition).hget(home.places, self._model)
        return found

    def _read(self, keys: PartitionKeys) -> _Found | None:
        text = self._store.node(keys.partition).hget(keys.models, self._model)
        return None if text is None else _Found(keys, text, ModelConfig.from_json(text))

    def _state(self, keys: PartitionKeys) -> str:
        found = self._store.node(keys.partition).hget(keys.moves, self._model)
        return "" if found is None else str(found.decode())

    def _await(self, is_done: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + self._patience_s
        while not is_done():
            if time.monotonic() > until:
                raise MoveInterrupted(f"no worker came to {what} in {self._patience_s:g} s")
            time.sleep(_POLL_S)

    def _step(self, name: str) -> None:
        self._on_step(name)


def moves_under_way(store: Store) -> Iterator[dict[str, Any]]:
    """Yield each move that has begun and has not ended, by the former partition."""
    for number in range(store.settings.partitions):
        texts = store.node(number).hvals(store.keys.partition(number).models)
        for config in (parsed_config(text) for text in texts if b'"moving":' in text):
            if config.moving is not None and not config.has_left:
                move = {
                    "stage": config.moving["stage"],
                    "former": number,
                    "to": config.moving["to"],
                }
                yield {"model": config.key, **move}


def _at_stage(config: ModelConfig, stage: str) -> ModelConfig:
    return replace(config, moving={**(config.moving or {}), "stage": stage})


def _place(config: ModelConfig, target: PartitionKeys) -> str:
    """Return where a model is after its next move, as directories say it."""
    return f"{target.partition}.{config.moves + 1}"


def _fields(entry: IngestEntry) -> list[Any]:
    """Return an entry as arguments of scripts: its bytes, its fields and values."""
    return [entry.n_bytes, *(part for pair in entry.to_fields().items() for part in pair)]


def _left_behind(names: list[str]) -> str:
    """Return what to do about batches that were not merged, by their names in `workers.ingest.parked`."""
    some = " ".join(names[:MAX_NAMED])
    rest = "" if len(names) <= MAX_NAMED else f", then for the other {len(names) - MAX_NAMED}"
    return (
        f"not merged and not moved: {len(names)} batches of the model. `python -m workers.ingest.parked` gives the reasons. Run "
        f"`python -m workers.ingest.parked replay {some}` to merge them, or `discard` for `replay` to remove them permanently{rest}. "
        "Then run this command again"
    )
