"""Group of entries for one commit: status of each entry, and what the group adds to panes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from calibrant_server.workers.ingest.cached_pane import (
    DUPLICATE,
    STALE,
    UnreadablePane,
    conflict_errors,
)
from calibrant_server.workers.ingest.entries import (
    EntryError,
    IngestEntry,
    InvalidValueError,
    backlog_share,
    fields_bytes,
    reserved_records,
)
from calibrant_server.workers.ingest.label_join import Mark
from calibrant_server.workers.ingest.pane_cache import PaneCache
from calibrant_server.workers.ingest.record_store import write_records
from calibrant_server.workers.ingest.reduce import Numerics, Reduction, StoreReads, reduce_entry
from calibrant_server.workers.ingest.row_outcomes import RowOutcomes
from calibrant_server.workers.store import batch_records as records
from calibrant_server.workers.store.batch_records import BatchRecord, RowError
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.keys import PaneKey, PartitionKeys
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
    touched: set[PaneKey] = field(default_factory=set)
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
        """Set the outcome of an error in filling: violations reject the batch, other errors dead-letter the entry.

        The error of the batch names the field and the row of an invalid value.
        """
        found = [asdict(each) for each in getattr(error, "violations", [])]
        if found:
            self.status, self.errors = records.REJECTED, found
        else:
            self.dead_letter(f"{type(error).__name__}: {error}"[:500])
            if isinstance(error, InvalidValueError):
                detail = f"{error.rule}: {error.detail}"
                self.errors = [
                    {"pointer": error.pointer, "rule": records.DEAD_LETTERED, "detail": detail}
                ]

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


class CommitGroup:
    """Items in the order of the stream, and the reduction of those that are filled."""

    def __init__(
        self,
        numerics: Numerics,
        progress: Callable[[], None] = lambda: None,
        reads: StoreReads | None = None,
    ):
        self._numerics = numerics
        self._progress = progress
        self._seen: set[tuple[str, str, str]] = set()
        self._careful = False
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
        """Decide the status of an item, and fill it if it counts."""
        self.items.append(item)
        entry = item.entry
        if entry is None:
            return
        batch = (entry.model, entry.generation, entry.batch_id)
        if batch in self._seen or item.is_known:
            item.status = None
            return
        self._seen.add(batch)
        if item.config is None or item.config.generation != entry.generation:
            item.reject("model_deleted", "the model was deleted after the batch was accepted")
            return
        self._fill(item)

    def _fill(self, item: Item) -> None:
        assert item.entry is not None and item.config is not None
        self._progress()
        # All entries share deltas at first. One that fails leaves them half filled; then each gets its own.
        whole = self.reduction
        target = whole
        mark: Mark = {}
        if self._careful:
            target, mark = Reduction(whole.reads), whole.reads.join.mark()
        try:
            item.n = reduce_entry(item.entry, item.config, self._numerics, target)
            if self._careful:
                target.close(self._numerics)
                whole.reads.join.check(mark)
        except NO_VERDICT:
            raise
        except Exception as error:
            item.judge(error)
            if self._careful:
                whole.reads.join.back(mark)
            else:
                self.refill()
            return
        item.other = target.other.get(item.id, {})
        if self._careful:
            item.touched = target.touched
            whole.absorb(target)

    def refill(self) -> None:
        """Repeat the reduction with the items that still count, each with its own deltas."""
        self._careful = True
        self.reduction = Reduction(self.reduction.reads.again())
        for item in self.items:
            item.claims = []
            if item.is_merged:
                self._fill(item)

    def apply(self, cache: PaneCache) -> None:
        """Add the reduction to the cached panes; dead-letter items that cannot be added, and continue."""
        try:
            self.reduction.close(self._numerics)
            self._join()
        except NO_VERDICT:
            raise
        except Exception as error:
            log.info("group_refilled error=%s", error)
            self.refill()
            self._join()
        while not self._try_apply(cache):
            cache.forget()
            self.refill()
            self._join()

    def _join(self) -> None:
        """Join the facts of all items that count, and note the outcomes of their rows."""
        join = self.reduction.reads.opened_join
        outcomes = {} if join is None else join.outcomes()
        for item in self.items:
            rows = outcomes.get(item.id)
            item.rows = (
                None if rows is None or item.entry is None else rows.placed(item.entry.places)
            )

    def _touched_by(self, item: Item) -> set[PaneKey]:
        join = self.reduction.reads.opened_join
        return item.touched if join is None else item.touched | join.touched_by(item.id)

    def _try_apply(self, cache: PaneCache) -> bool:
        known = [item.config for item in self.items if item.config]
        configs = {(config.key, config.generation): config for config in known}
        changes = self.reduction.changes(self._numerics)
        claimed = {claim.pane for _, claim in self.reduction.claims}
        try:
            cache.fetch(
                {*self.reduction.deltas, *claimed}, {*self.reduction.rows, *changes}, configs
            )
            for key in {**self.reduction.rows, **changes}:
                cache.add_rows(key, configs, self.reduction.rows.get(key), changes.get(key))
            for lifted in self.reduction.lifted:
                cache.lift(lifted)
            for key, (names, config) in self.reduction.erased().items():
                cache.erase(key, config, names)
        except UnreadablePane as error:
            self._park_touching(error, cache)
            return False
        for key, delta in self.reduction.deltas.items():
            cache.merge(key, delta)
        by_id = {item.id: item for item in self.items}
        for entry_id, claim in self.reduction.claims:
            item = by_id[entry_id]
            try:
                item.claims.append((claim.update.at or "", cache.claim(claim)))
            except NO_VERDICT:
                raise
            except Exception as error:
                item.judge(error)
                return False
        # One at a time: rejecting an earlier item may remove a conflict of a later one.
        return not any(_reject_conflicting(item) for item in self.items)

    def _park_touching(self, error: UnreadablePane, cache: PaneCache) -> None:
        if not self._careful:
            self.refill()
        merged = [item for item in self.items if item.is_merged]
        affected = [
            item for item in merged if error.key in set(map(cache.place, self._touched_by(item)))
        ]
        if not affected:
            raise error
        for item in affected:
            item.park(str(error))

    def write(self, commit: Commit, keys: PartitionKeys, ttl_s: int) -> None:
        """Write batch records and dead letters into a commit, and release the reservations."""
        for item in self.items:
            release_reserved(item, commit)
            dead_letter(item, commit)
            if item.entry is not None and item.status is not None:
                entry = item.entry
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


def dead_letter(item: Item, commit: Commit) -> None:
    """Store, in a commit, an entry that is not merged and not rejected."""
    if item.status == records.DEAD_LETTERED:
        log.error("entry_dead_lettered entry_id=%s error=%s", item.id, item.why)
        commit.dead_letter(item.id, item.why)
    elif item.status == records.PARKED:
        log.error("entry_parked entry_id=%s error=%s", item.id, item.why)
        commit.park(item.id, item.why, int(time.time() * 1000))


def release_reserved(item: Item, commit: Commit) -> None:
    """Release, in a commit, the records and bytes reserved for an entry.

    A dead-lettered or parked one stays in the backlog of its tenant until it is replayed or discarded.
    """
    reserved = item.reserved
    if item.status in (records.DEAD_LETTERED, records.PARKED):
        reserved = {name: n for name, n in reserved.items() if not name.startswith("backlog:")}
    commit.release(reserved)


def _reject_conflicting(item: Item) -> bool:
    """Reject an item with conflicting totals, unless it is partial and some of its updates are valid."""
    conflicts = item.conflicting()
    if not conflicts or not item.is_merged or item.entry is None:
        return False
    if item.entry.partial and len(conflicts) < item.n:
        return False
    item.status, item.errors = records.REJECTED, conflicts[:MAX_ROW_ERRORS]
    return True
