"""Outbox of a side partition: deltas on their way to the own partitions of their models.

The commit that consumes batches of hot models writes what they add as a delta into the outbox of the same slot, under a number
that is never used again. Afterwards the worker appends the delta to the stream of the model's own partition: the watermark of
the side partition there detects a repeat. The delta stays in the outbox until the own partition has taken it from its stream; with
durability `replicated`, until a replica has that.
A worker may be killed between any two of these steps. The next one reads the outbox and repeats them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from redis.exceptions import RedisError

from calibrant_server.workers.ingest.append import append_of, script_input
from calibrant_server.workers.ingest.commit_group import CommitGroup
from calibrant_server.workers.ingest.dead_letters import forget_generation
from calibrant_server.workers.ingest.delta_making import DeltaMaker
from calibrant_server.workers.ingest.deltas import DeltaName, batches_in
from calibrant_server.workers.ingest.entries import DELTA, IngestBatch, SourceOffsets
from calibrant_server.workers.ingest.forgotten_deltas import ForgottenDeltas
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_cache import HALVINGS, SampleKey
from calibrant_server.workers.ingest.store_totals import Amounts
from calibrant_server.workers.store import batch_records
from calibrant_server.workers.store.batch_records import BatchRecord
from calibrant_server.workers.store.commit import (
    LAST_DELTA,
    Commit,
    FencingToken,
    StaleTokenError,
)
from calibrant_server.workers.store.connection import Store, scripts
from calibrant_server.workers.store.keys import PartitionKeys, tenant_of
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.model_places import ConfigReader
from calibrant_server.workers.store.transient_errors import NO_VERDICT

log = logging.getLogger(__name__)

# While so much waits, the partition reduces nothing more: its stream fills, up to the bounds of the backlog.
MAX_BYTES, MAX_DELTAS = 32 << 20, 32
# After a delta, the next one is made of the batches of this time, or of so many bytes.
GATHER_S, GATHER_BYTES, _GATHER_STEP_S = 1.0, 4 << 20, 0.05
# How often the outbox looks whether its deltas are merged.
_POLL_S, _POLL_FULL_S = 0.25, 0.02
_AFTER_ERROR_S = 1.0
# The bytes of a delta were accepted with its batches, and the outbox has a bound of its own.
_NO_LIMITS = Amounts(*[1 << 52] * 4)
_SCAN_COUNT = 1000
_APPENDED, _KNOWN, _OTHER, _APPENDED_BEFORE, _MOVING = 1, 0, 2, 9, 17


@dataclass(frozen=True)
class Waiting:
    """A delta in the outbox.

    Attributes
    ----------
    since_ms : arrival of its first batch in the side partition
    """

    number: int
    model: str
    generation: str
    since_ms: int
    n_bytes: int

    def to_text(self) -> str:
        """Return the value in the index of the outbox."""
        return f"{self.since_ms} {self.n_bytes} {self.model}|{self.generation}"

    @classmethod
    def read(cls, number: bytes, text: bytes) -> Waiting:
        """Return what `to_text` wrote."""
        since_ms, n_bytes, of = text.decode().split(" ", 2)
        model, _, generation = of.partition("|")
        return cls(int(number), model, generation, int(since_ms), int(n_bytes))

    @property
    def of(self) -> tuple[str, str]:
        """Model and generation."""
        return self.model, self.generation


class Outbox:
    """The outbox of one partition, for the loop that has its lease."""

    def __init__(
        self, store: Store, keys: PartitionKeys, fencing: FencingToken, numerics: Numerics
    ):
        self._store, self._keys, self._fencing = store, keys, fencing
        self._node = store.node(keys.partition)
        self._maker = DeltaMaker(numerics, store.settings.sample_bytes, self._halvings)
        self._configs = ConfigReader(store.client, store.keys)
        self._known_halvings: dict[SampleKey, int] = {}
        self._forgotten = ForgottenDeltas(store, keys)
        self._checked: set[tuple[str, str]] = set()
        self._waiting: dict[int, Waiting] = {}
        self._last = 0
        self._due_at = float("inf")
        self._last_made_at = float("-inf")
        self._was_awaited, self._look_again_at = False, 0.0

    @property
    def due_at(self) -> float:
        """Monotonic seconds at which it needs a turn."""
        return self._due_at

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be added now."""
        n_bytes = sum(each.n_bytes for each in self._waiting.values())
        return n_bytes >= MAX_BYTES or len(self._waiting) >= MAX_DELTAS

    def wait(
        self,
        n_bytes: int,
        stop: threading.Event,
        progress: Callable[[], None],
    ) -> bool:
        """Wait for further batches if the last delta was made lately; return whether it has waited.

        To make a delta and to merge it costs milliseconds, however many rows it has: each is made of the batches of some time. A
        batch that arrives after a pause does not wait.

        Parameters
        ----------
        n_bytes : of the entries that were read since the last delta
        """
        left_s = self._last_made_at + GATHER_S - time.monotonic()
        if left_s <= 0 or n_bytes >= GATHER_BYTES:
            return False
        stop.wait(min(left_s, _GATHER_STEP_S))
        if time.monotonic() >= self._due_at:
            self.run(progress)
        return not stop.is_set()

    def reload(self) -> None:
        """Read what is there, after another worker or an error."""
        found = self._node.hgetall(self._keys.outbox_index)
        some = [Waiting.read(number, text) for number, text in found.items()]
        self._waiting = {each.number: each for each in sorted(some, key=lambda each: each.number)}
        self._checked = set()
        self._last = self._fencing.cursor.last_delta or 0
        self._due_at = 0.0 if self._waiting else float("inf")

    def check_forgotten(self, models: Iterable[tuple[str, str]]) -> None:
        """Before batches of models are reduced, once after `reload`: remember the deltas that the store has forgotten.

        Parameters
        ----------
        models : model and generation of each
        """
        for of in models:
            if of in self._checked:
                continue
            config = self.current(*of)
            if config is not None:
                appended_to, _ = self._positions(config)
                commit = self._forgotten.remember(config, appended_to)
                if commit is not None:
                    self._fencing.send(commit, self._fencing.new_token())
                self._last = max(self._last, appended_to)
            self._checked.add(of)

    def write(self, group: CommitGroup, commit: Commit) -> Sequence[Waiting]:
        """Write the deltas of a group into its commit; `add` them when it is written."""
        found: list[Waiting] = []
        names: dict[tuple[str, str], str] = {}
        for of_model in group.of_sides():
            config = of_model.config
            payload = self._maker.make(of_model).pack()
            number = self._last + len(found) + 1
            each = Waiting(number, config.key, config.generation, of_model.since_ms, len(payload))
            found.append(each)
            names[each.of] = str(DeltaName(self._keys.partition, number))
            commit.set_fields(self._keys.last_deltas, {"|".join(each.of): str(number)})
            commit.set_fields(self._keys.outbox, {str(number): payload})
            commit.set_fields(self._keys.outbox_index, {str(number): each.to_text()})
            backlog = {f"backlog:{tenant_of(config.key)}": len(payload)}
            commit.add_numbers(self._keys.retained, backlog)
        commit.set_fields(self._keys.cursor, {LAST_DELTA: str(self._last + len(found))})
        group.name_deltas(names)
        return found

    def add(self, written: Sequence[Waiting]) -> None:
        """Note deltas that a commit has written."""
        for each in written:
            self._waiting[each.number] = each
            self._last, self._due_at = each.number, 0.0
            self._last_made_at = time.monotonic()

    def is_full_after_turn(self, is_housekeeping_due: bool, progress: Callable[[], None]) -> bool:
        """Do what is due; return whether nothing more may be added now.

        A partition for which another one waits goes on: if two waited for each other, neither would ever go on. What it adds to
        its outbox is about what it takes from its stream, so together they stay within the bounds of the backlog.
        """
        if is_housekeeping_due:
            self.forget_gone_models(progress)
        if time.monotonic() >= self._due_at:
            self.run(progress)
        return self.is_full and not self._is_awaited()

    def _is_awaited(self) -> bool:
        """Whether an outbox has deltas for a model whose own partition this is."""
        if time.monotonic() >= self._look_again_at:
            try:
                self._was_awaited = self._look_for_waiting()
            except (RedisError, OSError) as error:
                log.warning("outboxes_not_read partition=%d error=%r", self._keys.partition, error)
                self._was_awaited = False
            self._look_again_at = time.monotonic() + _POLL_S
        return self._was_awaited

    def _look_for_waiting(self) -> bool:
        every = self._store.keys
        others = [each for each in range(every.partitions) if each != self._keys.partition]
        with self._store.client.pipeline(transaction=False) as pipe:
            for number in others:
                pipe.hvals(every.partition(number).outbox_index)
            found = pipe.execute()
        models = {Waiting.read(b"0", text).model for texts in found for text in texts}
        if not models:
            return False
        return any(text is not None for text in self._node.hmget(self._keys.models, sorted(models)))

    def run(self, progress: Callable[[], None]) -> None:
        """Append what is not appended, and remove what is merged. An error of another partition's server is retried later."""
        done: list[Waiting] = []
        by_model: dict[tuple[str, str], list[Waiting]] = {}
        for each in self._waiting.values():
            by_model.setdefault(each.of, []).append(each)
        pause_s = _POLL_FULL_S if self.is_full else _POLL_S
        for of, some in by_model.items():
            try:
                config = self.current(*of)
                done += some if config is None else self._forward(config, some, progress)
            except NO_VERDICT as error:
                log.warning("deltas_wait partition=%d error=%r", self._keys.partition, error)
                pause_s = _AFTER_ERROR_S
        if done:
            self._remove(done)
        self._due_at = time.monotonic() + pause_s if self._waiting else float("inf")

    def _forward(
        self, config: ModelConfig, some: Sequence[Waiting], progress: Callable[[], None]
    ) -> list[Waiting]:
        """Append deltas of a model in order; return those that are merged."""
        appended_to, merged_to = self._positions(config)
        for each in some:
            if each.number <= appended_to:
                continue
            progress()
            if not self._append(config, each.number, self._payload(each.number)):
                break  # deleted or moved meanwhile, which the next turn finds
        return [each for each in some if each.number <= merged_to]

    def _payload(self, number: int) -> bytes:
        """Return a delta as it is stored, and as a replica has it: what was in memory a failover may have undone."""
        command = ("HGET", self._keys.outbox, str(number))
        payload: bytes | None = self._store.confirmed(self._keys.partition, *command)
        if payload is None:
            raise StaleTokenError
        return payload

    def current(self, model: str, generation: str) -> ModelConfig | None:
        """Return the configuration of a model, with its present place; None if this generation was deleted.

        The own partition decides: here, an earlier model of the name may have been opened or closed late. An import has the generation
        of its export; what is here while it is not complete belongs to the model that was deleted before it.
        """
        config = self._configs.read(model)
        if config is None or config.generation != generation or config.importing is not None:
            return None
        return config

    def _positions(self, config: ModelConfig) -> tuple[int, int]:
        """Return the numbers of the last delta that was appended in the own partition, and of the last that was merged there.

        A master that was cut off may have merged what its replica does not have: then only the next master decides.
        """
        own, name = self._store.keys.of(config), DeltaName(self._keys.partition, 0)
        marks = own.marks(config.key, config.generation)
        fields = (name.watermark_field, name.merged_field)
        watermark, merged_to = self._store.confirmed(own.partition, "HMGET", marks, *fields)
        return int(watermark or 1) - 1, int(merged_to or 0)

    def _append(self, config: ModelConfig, number: int, payload: bytes) -> bool:
        """Append a delta to the stream of the model's own partition, once; return False if the model is not there."""
        own, name = self._store.keys.of(config), DeltaName(self._keys.partition, number)
        digest = blake2b(payload, digest_size=16).digest()
        batch = IngestBatch.of(
            config, name.batch_id, DELTA, payload, digest, 1,
            origin=SourceOffsets(name.source, number, number + 1),
        )  # fmt: skip
        record = BatchRecord(
            batch_records.ACCEPTED, digest.hex(), accepted=1, contains=batches_in(payload)
        )
        names, arguments = script_input(
            own,
            [append_of(own, batch, record, _NO_LIMITS)],
            _NO_LIMITS,
            self._store.settings.idempotency_ttl_s,
        )
        reply = self._run(own, names, arguments)
        kind = reply[2][0]
        if kind in (_OTHER, _MOVING):
            return False
        if kind not in (_APPENDED, _KNOWN, _APPENDED_BEFORE):
            raise RuntimeError(
                f"the own partition of {config.key} rejected delta {name}: {reply[2]}"
            )
        return True

    def _run(self, own: PartitionKeys, names: list[str], arguments: list[Any]) -> Any:
        """Run the script, also if the store's memory is full: a delta frees more than it takes."""
        text = scripts()["append_group"].replace("#!lua\n", "#!lua flags=allow-oom\n", 1)
        return self._store.confirmed(own.partition, "EVAL", text, len(names), *names, *arguments)

    def _remove(self, some: Sequence[Waiting]) -> None:
        """Remove deltas from the outbox."""
        commit, numbers = Commit(self._keys), [str(each.number) for each in some]
        commit.drop_fields(self._keys.outbox, numbers)
        commit.drop_fields(self._keys.outbox_index, numbers)
        for each in some:
            backlog = {f"backlog:{tenant_of(each.model)}": -each.n_bytes}
            commit.add_numbers(self._keys.retained, backlog)
        self._fencing.send(commit, self._fencing.new_token())
        for each in some:
            self._waiting.pop(each.number, None)

    def _halvings(self, config: ModelConfig, day_s: int) -> int:
        """Return how often the threshold of a day's sample was halved: rows above it would only be dropped.

        It never rises, so the last known number is right too; the partition does not wait for another one.
        """
        key = SampleKey(config.key, config.generation, day_s)
        own = self._store.keys.of(config)
        try:
            found = int(self._store.client.hget(key.name(own), HALVINGS) or 0)
        except (RedisError, OSError):
            return self._known_halvings.get(key, 0)
        if len(self._known_halvings) > 10_000:
            self._known_halvings.clear()
        self._known_halvings[key] = found
        return found

    def slices_of(self, config: ModelConfig) -> list[str]:
        """Return the slices of a model that have panes; none while they cannot be read: the own partition checks their number."""
        own = self._store.keys.of(config)
        try:
            members = self._store.client.smembers(own.slices(config.key, config.generation))
        except (RedisError, OSError):
            return []
        return [member.decode() for member in members]

    def forget_gone_models(self, progress: Callable[[], None]) -> None:
        """Remove what is left here of deleted models: records of batches, dead letters, and that this partition fills for them."""
        with self._node.pipeline(transaction=False) as pipe:
            pipe.hvals(self._keys.side_models)
            pipe.smembers(self._keys.gone_models)
            texts, members = pipe.execute()
        configs = map(ModelConfig.from_json, texts)
        named = [f"{config.key}|{config.generation}" for config in configs]
        for name in sorted({*named, *(member.decode() for member in members)}):
            model, _, generation = name.partition("|")
            try:
                is_gone = self.current(model, generation) is None
            except (RedisError, OSError) as error:
                log.warning("model_not_found_yet model=%s error=%r", model, error)
                continue
            if is_gone:
                self._forget_model(model, generation, progress)
            else:
                # A process that had paused opened the partition for an earlier model of the name.
                self._node.srem(self._keys.gone_models, name)

    def _forget_model(self, model: str, generation: str, progress: Callable[[], None]) -> None:
        pattern = self._keys.records_pattern(model, generation)
        for name in self._node.scan_iter(match=pattern, count=_SCAN_COUNT):
            progress()
            self._node.unlink(name)
        commit = Commit(self._keys)
        forget_generation(self._node, self._keys, model, generation, commit)
        commit.remove_member(self._keys.gone_models, f"{model}|{generation}")
        commit.drop_fields(self._keys.last_deltas, [f"{model}|{generation}"])
        names = [self._keys.side_models, self._keys.gone_models]
        text = scripts()["close_side_partition"]
        self._node.eval(text, len(names), *names, model, generation)
        self._fencing.send(commit, self._fencing.new_token())
