"""Group of entries for one commit: status of each entry, and what the group adds to panes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from calibrant_server.workers.ingest.cached_pane import (
    DUPLICATE,
    STALE,
    UnreadablePane,
    conflict_errors,
)
from calibrant_server.workers.ingest.entries import (
    ALONE,
    ORDERS,
    EntryError,
    IngestEntry,
    backlog_share,
    fields_bytes,
    reserved_records,
)
from calibrant_server.workers.ingest.label_join import RowOutcomes
from calibrant_server.workers.ingest.pane_cache import PaneCache
from calibrant_server.workers.ingest.record_store import write_records
from calibrant_server.workers.ingest.reduce import Numerics, Reduction, StoreReads, reduce_entry
from calibrant_server.workers.store import batch_records as records
from calibrant_server.workers.store.batch_records import BatchRecord, RowError
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.key_names import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.transient_errors import NO_VERDICT

log = logging.getLogger(__name__)
MAX_ROW_ERRORS = 100


@dataclass
class Item:
    """One entry of a group.

    Attributes
    ----------
    status : its outcome; None for an entry that is dropped because its id is known
    reserved : records and bytes that were reserved for it while it was in the stream, also for its tenant
    """

    id: str
    n_bytes: int
    reserved: dict[str, int] = field(default_factory=dict)
    entry: IngestEntry | None = None
    record: BatchRecord | None = None
    config: ModelConfig | None = None
    status: str | None = records.MERGED
    why: str = ""
    n: int = 0
    errors: list[RowError] = field(default_factory=list)
    claims: list[tuple[str, str]] = field(default_factory=list)
    rows: RowOutcomes | None = None
    other: dict[str, int] = field(default_factory=dict)

    @property
    def n_records(self) -> int:
        """Largest number of retained records that it may write."""
        return 0 if self.entry is None else self.entry.n_records

    @classmethod
    def read(cls, entry_id: str, fields: Mapping[bytes, bytes]) -> Item:
        """Read an entry of the stream; an unreadable one is dead-lettered."""
        item = cls(entry_id, fields_bytes(fields), reserved_records(fields) | backlog_share(fields))
        try:
            item.entry = IngestEntry.from_fields(entry_id, fields)
        except EntryError as error:
            item.dead_letter(str(error))
        return item

    def dead_letter(self, why: str) -> None:
        """Dead-letter the entry."""
        self.status, self.why = records.DEAD_LETTERED, why

    def park(self, why: str) -> None:
        """Park the entry: nothing is wrong with it, and it can be merged once the state that it touches is readable."""
        self.status, self.why = records.PARKED, why

    def reject(self, rule: str, detail: str, pointer: str = "") -> None:
        """Reject the batch."""
        self.status = records.REJECTED
        self.errors = [{"pointer": pointer, "rule": rule, "detail": detail}]

    def judge(self, error: Exception) -> None:
        """Set the outcome of an error in filling: violations reject the batch, other errors dead-letter the entry."""
        found = [asdict(each) for each in getattr(error, "violations", [])]
        if found:
            self.status, self.errors = records.REJECTED, found
        else:
            self.dead_letter(f"{type(error).__name__}: {error}"[:500])

    @property
    def is_known(self) -> bool:
        """Whether its batch has an outcome."""
        return self.record is not None and self.record.is_final

    @property
    def is_merged(self) -> bool:
        """Whether its outcome is `merged`, as it is until a check or a fill fails."""
        return self.status == records.MERGED

    def record_ttl_s(self, ttl_s: int) -> int:
        """Return how long the outcome is remembered; 0: until a dead letter or parked entry is replayed or discarded.

        A repeat of the batch after that time would count in addition to the replay.
        """
        return 0 if self.status in (records.DEAD_LETTERED, records.PARKED) else ttl_s

    def conflicting(self) -> list[RowError]:
        """Return a violation per running total whose sequence came before with other content."""
        return conflict_errors(self.claims) if self.claims else []

    def outcome(self) -> BatchRecord:
        """Return the batch record that the commit writes."""
        assert self.entry is not None
        record = self.record or BatchRecord(records.ACCEPTED, self.entry.digest.hex())
        if not (record.accepted or record.rejected):
            # The record that the append wrote has expired; a parked entry's new one counts no rows.
            record = replace(record, accepted=self.n)
        if self.status == records.PARKED:
            return record.ended(records.PARKED)
        if self.status != records.MERGED:
            errors = self.errors or [{"pointer": "", "rule": str(self.status), "detail": self.why}]
            none = {"accepted": 0, "rejected": record.accepted + record.rejected}
            return record.ended(str(self.status), errors=record.errors + errors, **none)
        changes: dict[str, Any] = {"slices_other": self.other}
        if self.claims:
            results = [result for _, result in self.claims]
            conflicts = self.conflicting()
            changes["stale"] = STALE in results
            changes["duplicate"] = all(result == DUPLICATE for result in results)
            changes["accepted"] = max(record.accepted - len(conflicts), 0)
            changes["rejected"] = record.rejected + len(conflicts)
            self.errors = self.errors + conflicts[:MAX_ROW_ERRORS]
        if self.rows is not None:
            changes |= self.rows.counts_after(record)
            self.errors = self.errors + self.rows.errors[:MAX_ROW_ERRORS]
        return record.ended(records.MERGED, errors=record.errors + self.errors, **changes)


class GroupFailedError(RuntimeError):
    """An entry of a group cannot be filled or added: the entries are committed one by one."""


class CommitGroup:
    """Items in the order of the stream, and the reduction of those that are filled."""

    def __init__(
        self,
        numerics: Numerics,
        progress: Callable[[], None],
        reads: StoreReads,
    ):
        self._numerics = numerics
        self._progress = progress
        self._seen: set[tuple[str, str, str]] = set()
        self.items: list[Item] = []
        self.reduction = Reduction(reads)

    @property
    def n_bytes(self) -> int:
        return sum(item.n_bytes for item in self.items)

    @property
    def n_records(self) -> int:
        """Largest number of records that the entries may write."""
        return sum(item.n_records for item in self.items)

    @property
    def last_id(self) -> str:
        return self.items[-1].id

    def add(self, item: Item) -> None:
        """Decide the status of an item, and fill it if it counts; raise GroupFailedError."""
        self.items.append(item)
        entry = item.entry
        if entry is None or entry.kind in ORDERS:
            return
        batch = (entry.model, entry.generation, entry.batch_id)
        if batch in self._seen or item.is_known:
            item.status = None
            return
        self._seen.add(batch)
        if item.config is None or item.config.generation != entry.generation:
            item.reject("model_deleted", "the model was deleted after the batch was accepted")
            return
        self._progress()
        if entry.kind in ALONE:
            return
        with self._judged():
            item.n = reduce_entry(entry, item.config, self._numerics, self.reduction)
        item.other = self.reduction.other.get(item.id, {})

    @contextmanager
    def _judged(self) -> Iterator[None]:
        """Set the outcome of the only item by an error, and leave out what it adds; of several, raise GroupFailedError."""
        try:
            yield
        except NO_VERDICT:
            raise
        except Exception as error:
            if len(self.items) > 1:
                raise GroupFailedError(f"{type(error).__name__}: {error}") from error
            [item] = self.items
            if not item.is_merged:
                raise
            if isinstance(error, UnreadablePane):
                item.park(str(error))
            else:
                item.judge(error)
            self._leave_out()

    def _leave_out(self) -> None:
        """Add nothing: the only item does not count."""
        self.reduction = Reduction(self.reduction.reads.again())

    @property
    def sole(self) -> Item | None:
        """The only item, if it is of a kind that is applied alone."""
        [item, *others] = self.items
        is_sole = not others and item.entry is not None and item.entry.kind in ALONE
        return item if is_sole else None

    def apply(self, cache: PaneCache) -> None:
        """Add the reduction to the cached panes; raise GroupFailedError."""
        n_merged = self.n_merged
        with self._judged():
            self.reduction.close(self._numerics)
            self._join()
            self._add_to(cache)
        if self.n_merged < n_merged:
            cache.forget()

    def _join(self) -> None:
        """Join the facts of all items that count, and note the outcomes of their rows."""
        join = self.reduction.reads.opened_join
        outcomes = {} if join is None else join.outcomes()
        for item in self.items:
            rows = outcomes.get(item.id)
            if rows is not None and item.entry is not None:
                item.rows = rows.placed(item.entry.places)

    def _add_to(self, cache: PaneCache) -> None:
        known = [item.config for item in self.items if item.config]
        configs = {(config.key, config.generation): config for config in known}
        changes = self.reduction.changes(self._numerics)
        claimed = {claim.pane for _, claim in self.reduction.claims}
        cache.fetch({*self.reduction.deltas, *claimed}, {*self.reduction.rows, *changes}, configs)
        for key in {**self.reduction.rows, **changes}:
            cache.add_rows(key, configs, self.reduction.rows.get(key), changes.get(key))
        for lifted in self.reduction.lifted:
            cache.lift(lifted)
        for key, (names, config) in self.reduction.erased().items():
            cache.erase(key, config, names)
        for key, delta in self.reduction.deltas.items():
            cache.merge(key, delta)
        self._claim(cache)

    def _claim(self, cache: PaneCache) -> None:
        """Replace running totals; reject an item whose totals conflict."""
        by_id = {item.id: item for item in self.items}
        for entry_id, claim in self.reduction.claims:
            outcome = cache.claim(claim)
            by_id[entry_id].claims.append((claim.update.at or "", outcome))
        for item in filter(_is_in_conflict, self.items):
            if len(self.items) > 1:
                raise GroupFailedError("a running total conflicts")
            item.status, item.errors = records.REJECTED, item.conflicting()[:MAX_ROW_ERRORS]
            self._leave_out()

    def write(self, commit: Commit, keys: PartitionKeys, ttl_s: int) -> None:
        """Write batch records and dead letters into a commit, and release the reservations."""
        for item in self.items:
            _release_reserved(item, commit)
            _dead_letter(item, commit)
            entry = item.entry
            if entry is not None and entry.batch_id and item.status is not None:
                key = keys.record(entry.model, entry.generation, entry.batch_id)
                commit.record(key, item.outcome().to_json(), item.record_ttl_s(ttl_s))

    def write_records(self, commit: Commit, keys: PartitionKeys) -> None:
        """Write changed records, members of units and counts into a commit."""
        join = self.reduction.reads.opened_join
        if join is None:
            return
        noted = [
            (item.config, item.rows)
            for item in self.items
            if item.is_merged and item.rows and item.config
        ]
        write_records(join, noted, commit, keys)

    @property
    def parked_bytes(self) -> int:
        """Bytes of the entries that the commit will park."""
        return sum(item.n_bytes for item in self.items if item.status == records.PARKED)

    @property
    def n_merged(self) -> int:
        """Batches that are merged."""
        return sum(item.is_merged for item in self.items)


def _dead_letter(item: Item, commit: Commit) -> None:
    """Store, in a commit, an entry that is not merged and not rejected."""
    if item.status == records.DEAD_LETTERED:
        log.error("entry_dead_lettered entry_id=%s error=%s", item.id, item.why)
        commit.dead_letter(item.id, item.why)
    elif item.status == records.PARKED:
        log.error("entry_parked entry_id=%s error=%s", item.id, item.why)
        commit.park(item.id, item.why, int(time.time() * 1000))


def _release_reserved(item: Item, commit: Commit) -> None:
    """Release, in a commit, the records and bytes reserved for an entry.

    A dead-lettered or parked one stays in the backlog of its tenant until it is replayed or discarded.
    """
    reserved = item.reserved
    if item.status in (records.DEAD_LETTERED, records.PARKED):
        reserved = {name: n for name, n in reserved.items() if not name.startswith("backlog:")}
    commit.release(reserved)


def _is_in_conflict(item: Item) -> bool:
    """Whether an item is to be rejected for conflicting totals: it is not partial, or none of its updates is valid."""
    conflicts = item.conflicting()
    if not conflicts or not item.is_merged or item.entry is None:
        return False
    return not item.entry.partial or len(conflicts) >= item.n
