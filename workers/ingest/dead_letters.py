"""Entries that were not merged: list them, replay each exactly once, or discard them.

A **dead letter** cannot be merged as it is: its content or the code is at fault. A **parked** entry failed alone ten times
without a verdict about its content, or touches a damaged pane. The commit that moves the cursor past either stores it
with its payload. It stays in the backlog of its tenant, so the bound of that bounds it too: at the bound, the tenant's ingest
is rejected, and nothing that was acknowledged is lost. Its batch id stays open, without a time limit, until the entry is
replayed or discarded: a repeat of the batch never counts in addition to its replay. A replayed entry counts like a batch
that arrives late: under its own id, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from calibrant_server.workers.ingest.entries import ORDERS, fields_bytes, reservation
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store import batch_records
from calibrant_server.workers.store.batch_records import BatchRecord
from calibrant_server.workers.store.commit import Commit, id_order
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.key_names import PartitionKeys, tenant_of
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.script import run_script

DEAD, PARKED = "dead", "parked"
Action = Callable[[Store, int, str], bool]
# Pairs that the commit puts before the entry's own: src, why; and for a parked entry its time.
_N_REASONS = {DEAD: 2, PARKED: 3}
_HEADS_A_READ = 100
_DISCARDED = "An operator discarded the entry"


@dataclass(frozen=True)
class EntryHead:
    """An entry of a stream without its payload: bytes of all fields, bytes of the payload, and the other fields."""

    id: str
    n_bytes: int
    payload_bytes: int
    fields: dict[bytes, bytes]

    @classmethod
    def of(cls, reply: Sequence[Any]) -> EntryHead:
        """Read one entry of the reply of `entry_heads.lua`."""
        entry_id, n_bytes, payload_bytes, pairs = reply
        fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
        return cls(entry_id.decode(), int(n_bytes), int(payload_bytes), fields)


@dataclass(frozen=True)
class DeadLetter:
    """One entry that was not merged.

    Attributes
    ----------
    state : `dead` or `parked`
    entry_id : in the stream of such entries of its partition
    why : the last error
    at_ms : milliseconds since the epoch at which it was stored there
    received_ms : milliseconds since the epoch at which it was received; None if unreadable
    n_bytes : of the entry as received
    n_records, record_bytes : retained records that it may add
    """

    partition: int
    state: str
    entry_id: str
    model: str
    generation: str
    batch_id: str
    kind: str
    why: str
    at_ms: int
    received_ms: int | None
    n_bytes: int
    n_records: int = 0
    record_bytes: int = 0

    @property
    def id(self) -> str:
        """Its name within its partition, which the calls below take."""
        return f"{self.state}-{self.entry_id}"

    @property
    def backlog_bytes(self) -> int:
        """Bytes that it takes of the backlog of its tenant; orders take none."""
        return 0 if self.kind in ORDERS else self.n_bytes


def read_heads(node: Any, name: str, first: str = "-") -> Iterator[EntryHead]:
    """Yield the entries of a stream without their payloads, from an id on."""
    while found := run_script(node, "entry_heads", [name], [first, _HEADS_A_READ]):
        for each in found:
            yield EntryHead.of(each)
        first = f"({found[-1][0].decode()}"


def read_head(node: Any, name: str, first: str) -> EntryHead | None:
    """Return the first entry of a stream from an id on, without its payload."""
    found = run_script(node, "entry_heads", [name], [first, 1])
    return EntryHead.of(found[0]) if found else None


def dead_letters(store: Store, partition: int) -> Iterator[DeadLetter]:
    """Yield the dead letters of a partition, then its parked entries, oldest first."""
    node, keys = store.node(partition), store.keys.partition(partition)
    for state in (DEAD, PARKED):
        for head in read_heads(node, _stream(keys, state)):
            yield _letter(partition, state, head)


def forget_generation(
    node: Any, keys: PartitionKeys, model: str, generation: str, commit: Commit
) -> None:
    """Remove one generation's entries in a commit, and their bytes from the backlog of its tenant."""
    name, n_bytes = (model.encode(), generation.encode()), 0
    for state in (DEAD, PARKED):
        heads = [
            head
            for head in read_heads(node, _stream(keys, state))
            if (head.fields.get(b"m"), head.fields.get(b"g")) == name
        ]
        n_bytes += sum(_letter(keys.partition, state, head).backlog_bytes for head in heads)
        commit.forget_entries(_stream(keys, state), [head.id for head in heads])
    commit.add_numbers(keys.retained, {f"backlog:{tenant_of(model)}": -n_bytes})


def find(store: Store, partition: int, name: str) -> DeadLetter | None:
    """Return an entry by its name, or None if it is not there (any more)."""
    state, _, entry_id = name.partition("-")
    node, keys = store.node(partition), store.keys.partition(partition)
    if state not in _N_REASONS or not _is_id(entry_id):
        return None
    head = read_head(node, _stream(keys, state), entry_id)
    return _letter(partition, state, head) if head is not None and head.id == entry_id else None


def replay(store: Store, partition: int, name: str) -> bool:
    """Move an entry back to its stream; return False if no entry has this name (any more)."""
    letter = find(store, partition, name)
    if letter is None:
        return False
    keys, node = store.keys.partition(partition), store.node(partition)
    stream = _stream(keys, letter.state)
    tenant = tenant_of(letter.model)
    key, before = _record_of(node, keys, letter)
    record = BatchRecord.from_json(before) if before else None
    after = b""
    if record is not None and _is_open(record):
        after = _accepted(record).to_json()
    else:
        # Another final record stays: the id counted after another arrival, and the replayed entry is dropped.
        before = b""
    names = [stream, keys.stream, keys.bytes_in, keys.retained, key or stream]
    values = [
        letter.entry_id, _N_REASONS[letter.state], letter.n_records, letter.record_bytes, before, after,
        tenant, int(letter.kind not in ORDERS),
    ]  # fmt: skip
    return bool(store.run(partition, "replay_entry", names, values)[0])


def discard(store: Store, partition: int, name: str) -> bool:
    """Discard an entry permanently; return False if no entry has this name (any more).

    Its batch id then has the final status `dead_lettered` for as long as ids are remembered.
    """
    letter = find(store, partition, name)
    if letter is None:
        return False
    keys, node = store.keys.partition(partition), store.node(partition)
    stream = _stream(keys, letter.state)
    key, before = _record_of(node, keys, letter)
    record = BatchRecord.from_json(before) if before else None
    after = b""
    if record is not None and _is_open(record):
        after = _discarded(record, letter.why).to_json()
    else:
        before = b""
    values = [
        letter.entry_id, before, after, store.settings.idempotency_ttl_s,
        tenant_of(letter.model), letter.backlog_bytes,
    ]  # fmt: skip
    names = [stream, key or stream, keys.retained]
    return bool(store.run(partition, "discard_entry", names, values))


def _record_of(node: Any, keys: PartitionKeys, letter: DeadLetter) -> tuple[str, bytes]:
    """Return key and content of the record of the entry's batch id; empty without an id, a model or a record."""
    if not (letter.batch_id and letter.model and letter.generation):
        return "", b""
    key = keys.record(letter.model, letter.generation, letter.batch_id)
    return key, node.get(key) or b""


def _is_open(record: BatchRecord) -> bool:
    """Whether the record describes the entry that is stored, rather than a later arrival under the same id."""
    return not record.is_final or record.status == batch_records.DEAD_LETTERED


def _accepted(record: BatchRecord) -> BatchRecord:
    """Return the record as it was before its entry failed. Its errors are then those of rows that were rejected at once."""
    errors, n_rows = _of_rows(record), record.accepted + record.rejected
    counts = {"accepted": n_rows - len(errors), "rejected": len(errors)}
    return record.ended(batch_records.ACCEPTED, errors=errors, **counts)


def _discarded(record: BatchRecord, why: str) -> BatchRecord:
    error = {"pointer": "", "rule": "discarded", "detail": f"{_DISCARDED}: {why}"}
    counts = {"accepted": 0, "rejected": record.accepted + record.rejected}
    errors = [*_of_rows(record), error]
    return record.ended(batch_records.DEAD_LETTERED, errors=errors, **counts)


def _of_rows(record: BatchRecord) -> list[dict[str, str]]:
    return [each for each in record.errors if each["rule"] != batch_records.DEAD_LETTERED]


def _stream(keys: PartitionKeys, state: str) -> str:
    return keys.dead_letters if state == DEAD else keys.parked


def _letter(partition: int, state: str, head: EntryHead) -> DeadLetter:
    pairs = list(head.fields.items())
    reasons, own = dict(pairs[: _N_REASONS[state]]), dict(pairs[_N_REASONS[state] :])
    model, generation, batch_id, kind, received = (
        own.get(name, b"").decode(errors="replace") for name in (b"m", b"g", b"i", b"k", b"t")
    )
    reserved = reservation(own, head.payload_bytes)
    return DeadLetter(
        partition, state, head.id, model, generation, batch_id, kind,
        why=reasons.get(b"why", b"").decode(errors="replace"),
        at_ms=int(reasons[b"at"]) if state == PARKED else id_order(head.id)[0],
        received_ms=int(received) if received.isdigit() else None,
        n_bytes=head.n_bytes - fields_bytes(reasons),
        n_records=reserved["coming"],
        record_bytes=reserved["coming_bytes"],
    )  # fmt: skip


def _is_id(text: str) -> bool:
    milliseconds, _, sequence = text.partition("-")
    return milliseconds.isdecimal() and sequence.isdecimal()


class DeadLetterReader:
    """Entries of models that were not merged, for the HTTP service; `store_retries` repeats a call after transient errors.

    Requests are rare and belong to operators. So they use a blocking client in a thread, and the same code as the command.
    """

    def __init__(self, settings: EngineSettings, store_retries: Callable[..., Awaitable[Any]]):
        self._settings = settings
        self._retried = store_retries
        self._opened: Store | None = None

    def close(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened.close()

    async def of_model(self, config: ModelConfig) -> list[DeadLetter]:
        """Return the entries of a model, oldest first."""

        def read() -> list[DeadLetter]:
            partition = self._store.keys.partition_of(config.key)
            found = dead_letters(self._store, partition)
            mine = [each for each in found if _is_of(each, config)]
            return sorted(mine, key=lambda each: (each.at_ms, each.id))

        return list(await self._retried(lambda: asyncio.to_thread(read)))

    async def replay(self, config: ModelConfig, name: str) -> bool:
        """Move an entry of a model back to its stream; return False if the model has no such entry."""
        return await self._act(replay, config, name)

    async def discard(self, config: ModelConfig, name: str) -> bool:
        """Discard an entry of a model permanently; return False if the model has no such entry."""
        return await self._act(discard, config, name)

    async def _act(self, action: Action, config: ModelConfig, name: str) -> bool:
        def act() -> bool:
            partition = self._store.keys.partition_of(config.key)
            letter = find(self._store, partition, name)
            is_mine = letter is not None and _is_of(letter, config)
            return is_mine and action(self._store, partition, name)

        # A repeat after a lost reply finds the entry gone: the caller learns that it is not there any more.
        return bool(await self._retried(lambda: asyncio.to_thread(act), writes=True))

    @property
    def _store(self) -> Store:
        if self._opened is None:
            self._opened = Store(self._settings)
        return self._opened


def _is_of(letter: DeadLetter, config: ModelConfig) -> bool:
    return (letter.model, letter.generation) == (config.key, config.generation)
