"""Cached tails, panes and samples of a partition, as the last commit left them, and one bound on their memory per process.

A commit appends rows to the tail of their time slice. Only where the tail is larger than the panes that it feeds are these
read, filled and written, and the tail removed. Posted panes and histograms change stored sums.

Panes are changed in place while a commit is prepared. This is safe because every outcome but a written commit drops all
of them: the cache holds what the store holds, or nothing. The partitions of a process share one `PaneBudget`.

What a commit changes of a day in files (`cold_days`) is read from these and written to the store completely. Such a day has no tails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from calibrant.core.hashing import hash_names
from calibrant.core.packing import PackingError
from calibrant.core.pane import Pane
from calibrant_server.workers.ingest.baseline_samples import BaselineSamples
from calibrant_server.workers.ingest.cached_pane import CachedPane, UnreadablePane, total_field
from calibrant_server.workers.ingest.changed_rows import ChangedRows
from calibrant_server.workers.ingest.pane_budget import CacheKey, PaneBudget, TailKey
from calibrant_server.workers.ingest.posted_sums import Claim, LiftedSample
from calibrant_server.workers.ingest.reduce import NewRows, Numerics
from calibrant_server.workers.ingest.sample_cache import (
    CachedSample,
    SampleCache,
    SampleKey,
    pane_order,
)
from calibrant_server.workers.ingest.tail_cache import MAX_TAIL_BYTES, CachedTail
from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.segments.sampled import sampled
from calibrant_server.workers.store.cold_days import ColdDays, pane_item
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.file_store import FilesUnavailable
from calibrant_server.workers.store.keys import LAST_CHANGE, PaneKey, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.slice_names import sealed_slice
from calibrant_server.workers.store.watermarks import Watermarks, latest_day

# Models whose slices are known to be listed; a slice that is not known is listed again.
MAX_KNOWN_MODELS = 1000
# Rows of tails of a partition that are in memory unpacked too, until they become sums: those of the tails that changed last.
MAX_UNPACKED_BYTES = 16 << 20
# Tails that keep pieces of few rows unpacked: those that changed last. The next small commit would unpack them again.
MAX_FEW_UNPACKED = 8


def _model(key: PaneKey) -> tuple[str, str]:
    return key.model, key.generation


class PaneCache:
    """Cached tails and panes of one partition; their memory is bounded by a budget that partitions share."""

    def __init__(self, store: Store, keys: PartitionKeys, numerics: Numerics, budget: PaneBudget):
        self._store = store
        self._keys = keys
        self._numerics = numerics
        self._budget = budget
        self._panes: dict[PaneKey, CachedPane] = {}
        self._tails: dict[PaneKey, CachedTail] = {}
        self._unpacked: dict[PaneKey, int] = {}
        self._few_unpacked: dict[PaneKey, None] = {}
        self._used: dict[CacheKey, int] = {}
        self._marks: dict[tuple[str, str], dict[bytes, bytes]] = {}
        self._slices: dict[tuple[str, str], set[str]] = {}
        self._changed: set[PaneKey] = set()
        self._changed_tails: set[PaneKey] = set()
        self._posted: set[PaneKey] = set()
        self._fed: set[PaneKey] = set()
        node = store.node(keys.partition)
        self._cold = ColdDays(node, keys)
        self._samples = SampleCache(node, keys, store.settings.sample_bytes, self._cold)
        self._baselines = BaselineSamples(node, keys, numerics)

    def forget(self) -> None:
        """Drop everything: the state of the store is unknown."""
        self._budget.begin(self)
        dropped: list[CacheKey] = [*self._panes, *map(TailKey, self._tails), *self._samples.keys()]
        self._samples.forget()
        self._cold.forget()
        self._baselines.forget()
        for cached in (
            self._panes,
            self._tails,
            self._unpacked,
            self._few_unpacked,
            self._used,
            self._marks,
            self._slices,
        ):
            cached.clear()
        self._budget.drop(self, dropped)
        self._forget_changes()

    def _forget_changes(self) -> None:
        for changes in (self._changed, self._changed_tails, self._posted, self._fed):
            changes.clear()

    def fetch(
        self,
        wanted: Iterable[PaneKey],
        tails: Iterable[PaneKey],
        configs: Mapping[tuple[str, str], ModelConfig],
    ) -> None:
        """Load panes and tails that are not cached, in one round trip; raise UnreadablePane.

        Until `trim` or `forget` no other partition evicts from this cache.

        Parameters
        ----------
        tails : by the pane of all rows of their time slice
        """
        self._budget.begin(self)
        wanted, tails = list(wanted), list(tails)
        node = self._store.node(self._keys.partition)
        models = set(map(_model, (*wanted, *tails)))
        self._know(sorted(models - self._marks.keys()), node)
        missing = [key for key in dict.fromkeys(map(self.place, wanted)) if key not in self._panes]
        missing_tails = [key for key in tails if key not in self._tails and not self._is_old(key)]
        if not missing and not missing_tails:
            return
        in_files = self._of_files(missing, node)
        with node.pipeline(transaction=False) as pipe:
            for key in missing:
                pipe.hgetall(self._keys.pane(key))
            for key in missing_tails:
                pipe.hgetall(self._keys.tail(key))
            found = pipe.execute()
        for key, fields in zip(missing, found, strict=False):
            spec = self._numerics.spec(configs[key.model, key.generation])
            if key in in_files:
                cached = CachedPane.read(key, in_files[key], spec, self._numerics).unstored()
            else:
                cached = CachedPane.read(key, fields, spec, self._numerics)
            self._panes[key], self._used[key] = cached, cached.memory_bytes
        for key, fields in zip(missing_tails, found[len(missing) :], strict=True):
            self._tails[key] = self._read_tail(key, fields)

    def _know(self, models: Sequence[tuple[str, str]], node: Any) -> None:
        """Read the watermarks and cold days of models."""
        if not models:
            return
        with node.pipeline(transaction=False) as pipe:
            for model in models:
                pipe.hgetall(self._keys.marks(*model))
                pipe.hgetall(self._keys.cold_days(*model))
            found = pipe.execute()
        for model, marks, days in zip(models, found[::2], found[1::2], strict=True):
            self._marks[model] = marks
            self._cold.put(model, days)

    def _of_files(self, keys: Sequence[PaneKey], node: Any) -> dict[PaneKey, dict[bytes, bytes]]:
        """Return the fields of the panes that are in files; raise UnreadablePane.

        If the store of files has been away for a while, the entries that need it are parked; the others do not wait.
        """
        cold = [key for key in keys if self._cold.day(_model(key), key.start_s) is not None]
        if not cold:
            return {}
        with node.pipeline(transaction=False) as pipe:
            for key in cold:
                pipe.hexists(self._keys.versions(*_model(key), key.slice), key.start_s)
            exist = pipe.execute()
        by_model: dict[tuple[str, str], list[PaneKey]] = {}
        for key, exists in zip(cold, exist, strict=True):
            if exists:
                by_model.setdefault(_model(key), []).append(key)
        found = {}
        for model, some in by_model.items():
            with self._readable(some[0]):
                read = self._cold.fields(model, list(map(pane_item, some)))
            for key, fields in zip(some, read, strict=True):
                if isinstance(fields, PackingError):
                    raise UnreadablePane(key, fields)
                if fields is not None:
                    found[key] = fields
        return found

    @contextmanager
    def _readable(self, key: PaneKey) -> Iterator[None]:
        """Raise UnreadablePane where the state of a pane is damaged, or where its file has been out of reach for a while."""
        try:
            yield
        except PackingError as error:
            raise UnreadablePane(self.place(key), error) from error
        except FilesUnavailable as error:
            if self._keys.files is not None and not self._keys.files.is_lasting:
                raise
            raise UnreadablePane(self.place(key), error) from error

    def _read_tail(self, key: PaneKey, fields: dict[bytes, bytes]) -> CachedTail:
        try:
            return CachedTail.read(self._numerics.rows, fields)
        except PackingError as error:
            raise UnreadablePane(key, error) from error

    def place(self, key: PaneKey) -> PaneKey:
        """Return the pane that stores what is filled into `key`: itself, or the day that it was merged into."""
        return replace(key, start_s=self._marks_of(key).start(key.start_s))

    def _marks_of(self, key: PaneKey) -> Watermarks:
        return Watermarks.of(key.slice, self._marks[key.model, key.generation])

    def _is_old(self, key: PaneKey) -> bool:
        """Whether a slice of the model has merged this time into a day, or the day is in files: it has no tail any more."""
        if key.start_s < latest_day(self._marks[_model(key)]):
            return True
        return self._cold.day(_model(key), key.start_s) is not None

    def add_rows(
        self,
        key: PaneKey,
        configs: Mapping[tuple[str, str], ModelConfig],
        new: NewRows | None,
        change: ChangedRows | None,
    ) -> None:
        """Add rows to a fetched tail, or to the sums where the tail has become too large; raise UnreadablePane.

        Parameters
        ----------
        key : pane of all rows of the time slice
        new : batches without ids
        change : rows with ids, lost and gained
        """
        config = configs[key.model, key.generation]
        is_old = self._is_old(key)
        tail = CachedTail(self._numerics.rows) if is_old else self._tails[key]
        added = self._rows_of(tail.next_part, new, change)
        self._fed |= {self.place(replace(key, slice=slice_)) for slice_ in added.n_by_slice}
        if is_old:
            self._fill(key, config, added)
            return
        self._changed_tails.add(key)
        limit = self._limit(key, config, tail, added)
        if tail.n_bytes + added.least_bytes <= limit:
            tail.append(added)
            if tail.n_bytes > limit:
                self._fold(key, config, tail, None)
        else:
            self._fold(key, config, tail, added)

    def _rows_of(self, part: int, new: NewRows | None, change: ChangedRows | None) -> Rows:
        rows = self._numerics.rows
        batches = [] if new is None else new.batches
        added = [rows.of_batch(batch, part + i) for i, batch in enumerate(batches)]
        if change is not None:
            added += change.rows(part + len(batches))
        return rows.together(added)

    def _limit(self, key: PaneKey, config: ModelConfig, tail: CachedTail, added: Rows) -> int:
        """Return the bytes above which rows become sums: the estimated size of all panes that they feed."""
        spec, numbers = self._numerics.spec(config), tail.n_by_slice(added.n_by_slice)
        estimated = sum(
            self._numerics.pane_bytes(spec, n + self._n_in_sums(replace(key, slice=slice_)))
            for slice_, n in numbers.items()
        )
        return min(MAX_TAIL_BYTES, estimated)

    def _n_in_sums(self, key: PaneKey) -> int:
        """Return the number of predictions in the sums of a pane; 0 where it is not in memory."""
        cached = self._panes.get(self.place(key))
        return 0 if cached is None else self._numerics.n_predictions(cached.pane)

    def _fold(
        self, key: PaneKey, config: ModelConfig, tail: CachedTail, added: Rows | None
    ) -> None:
        """Fill a tail and the rows added to it into the sums; the commit removes the tail.

        If one of the panes cannot be read, the rows stay rows, up to twice the bytes of a tail.
        """
        parts = [rows for rows in (tail.all_rows(), added) if rows is not None]
        try:
            self._fill(key, config, self._numerics.rows.together(parts))
        except UnreadablePane as error:
            if added is not None:
                tail.append(added)
            if tail.n_bytes > 2 * MAX_TAIL_BYTES:
                raise UnreadablePane(key, error) from error
            return
        tail.clear()

    def _fill(self, key: PaneKey, config: ModelConfig, rows: Rows) -> None:
        """Fill rows into the sums of every slice."""
        spec = self._numerics.spec(config)
        sample = self._sample(key)
        panes = {slice_: replace(key, slice=slice_) for slice_ in rows.n_by_slice}
        self.fetch(panes.values(), (), {(config.key, config.generation): config})
        for slice_, name in panes.items():
            pane = self._panes[self.place(name)].pane
            rows.fill_into(pane, slice_, lambda: self._numerics.empty(spec))
            self._changed.add(self.place(name))
        if sample is not None:
            sample.add(sampled(rows.net, key.start_s, sample.halvings))

    def _sample(self, key: PaneKey) -> CachedSample | None:
        """Return the sample that has a pane's rows; None where none is stored."""
        if not (self._numerics.keeps_samples and self._samples.max_bytes):
            return None
        with self._readable(key):
            return self._samples[SampleKey.of(key)]

    def lift(self, lifted: LiftedSample) -> None:
        """Move the sample of a posted pane to its model and day; raise UnreadablePane."""
        sample = self._sample(lifted.key)
        if sample is not None:
            sample.add(lifted.rows, lifted.halvings)

    def erase(self, key: PaneKey, config: ModelConfig, names: Sequence[str]) -> None:
        """Remove every stored row of deleted ids, whose removal is among the rows already; raise UnreadablePane.

        Parameters
        ----------
        key : pane of all rows of their time slice
        """
        self._cold.note_erased(_model(key), key.start_s)
        if not self._numerics.keeps_samples:
            return
        hashes = hash_names(list(names))
        tail = self._tails.get(key)
        if tail is not None and tail.still_has(hashes):
            self._fold(key, config, tail, None)
        for clock in (key, replace(key, slice=sealed_slice(key.slice))):
            sample = self._sample(clock)
            if sample is not None:
                sample.without(hashes)
        self._baselines.erase(config, key.start_s, hashes)

    def merge(self, key: PaneKey, delta: Pane) -> None:
        """Add a delta to a fetched pane."""
        self._panes[self.place(key)].pane.merge(delta)
        self._note_posted(key)

    def _note_posted(self, key: PaneKey) -> None:
        self._changed.add(self.place(key))
        self._posted.add(self.place(key))

    def claim(self, claim: Claim) -> str:
        """Replace the earlier running total of a source by a newer one; return the outcome."""
        cached = self._panes[self.place(claim.pane)]
        self._note_posted(claim.pane)
        is_daily = claim.pane.start_s < self._marks_of(claim.pane).daily_to
        name = total_field(claim.name, claim.pane.start_s if is_daily else None)
        return cached.replace_total(name, claim, self._numerics)

    def write(self, commit: Commit, version: bytes) -> None:
        """Write all changes into a commit. Panes whose rows only became sums keep their version."""
        for key in sorted(self._changed_tails, key=pane_order):
            self._tails[key].write(self._keys.tail(key), commit)
        self._bound_unpacked()
        for key in sorted(self._changed_tails, key=pane_order):
            tail = self._tails[key]
            self._used[TailKey(key)] = tail.memory_bytes + self._unpacked.get(key, 0)
        renewed = set(self._fed)
        if self._samples.used:
            renewed.update(self._samples.renewed())
            self._used.update(self._samples.write(commit, version).items())
        if self._baselines.changed:
            self._baselines.write(commit, version)
        for key in sorted(self._changed, key=pane_order):
            if self._write(key, commit) and key in self._posted:
                renewed.add(key)
            self._panes[key].pane.tighten()
            self._used[key] = self._panes[key].memory_bytes
            self._cold.take_back(_model(key), [pane_item(key)])
        self._cold.write(commit)
        self._write_versions(renewed, commit, version)
        self._forget_changes()

    def _bound_unpacked(self) -> None:
        """Drop unpacked rows of the tails that changed longest ago, where they are too many, or few in each of many tails."""
        self._bound_few_unpacked()
        for key in self._changed_tails:
            self._count_unpacked(key)
        excess = sum(self._unpacked.values()) - MAX_UNPACKED_BYTES
        for key in list(self._unpacked) if excess > 0 else ():
            self._tails[key].drop_unpacked()
            self._used[TailKey(key)] = self._tails[key].memory_bytes
            excess -= self._unpacked.pop(key)
            if excess <= 0:
                break

    def _bound_few_unpacked(self) -> None:
        for key in self._changed_tails:
            self._few_unpacked.pop(key, None)
            if self._tails[key].has_few_unpacked:
                self._few_unpacked[key] = None
        for key in list(self._few_unpacked)[:-MAX_FEW_UNPACKED]:
            del self._few_unpacked[key]
            tail = self._tails[key]
            tail.drop_few_unpacked()
            if key not in self._changed_tails:
                self._count_unpacked(key)
                self._used[TailKey(key)] = tail.memory_bytes + self._unpacked.get(key, 0)

    def _count_unpacked(self, key: PaneKey) -> None:
        self._unpacked.pop(key, None)
        n_bytes = self._tails[key].unpacked_bytes
        if n_bytes:
            self._unpacked[key] = n_bytes

    def _write(self, key: PaneKey, commit: Commit) -> bool:
        """Write the changed sums of a pane; return whether it has any content."""
        cached = self._panes[key]
        parts = cached.pane.parts()
        changed: dict[str, bytes] = {
            name: value for name, value in parts.items() if cached.parts.get(name) != value
        }
        changed |= {name: cached.sources[name] for name in cached.changed_sources}
        gone = [name for name in cached.parts if name not in parts]
        has_content = bool(changed or cached.parts or cached.sources)
        if changed:
            commit.set_fields(self._keys.pane(key), changed)
        if gone:
            commit.drop_fields(self._keys.pane(key), gone)
        cached.parts = dict(parts)
        cached.changed_sources = set()
        return has_content

    def _write_versions(self, panes: Iterable[PaneKey], commit: Commit, version: bytes) -> None:
        by_slice: dict[PaneKey, dict[str, bytes]] = {}
        for key in sorted(panes, key=pane_order):
            fields = by_slice.setdefault(replace(key, start_s=0), {LAST_CHANGE: version})
            fields[str(key.start_s)] = version
        for key, fields in by_slice.items():
            model = (key.model, key.generation)
            known = self._slices.setdefault(model, set())
            if key.slice not in known:
                commit.add_member(self._keys.slices(*model), key.slice)
                known.add(key.slice)
            commit.set_fields(self._keys.versions(*model, key.slice), fields)

    def trim(self) -> None:
        """Evict the least recently used panes of any partition, down to the limit. Call it only right after a written commit."""
        used, self._used = self._used, {}
        self._budget.end(self, used)
        if len(self._slices) > MAX_KNOWN_MODELS:
            self._slices.clear()

    def evict(self, key: CacheKey) -> None:
        """Drop one pane or tail, as the budget asks."""
        if isinstance(key, SampleKey):
            self._samples.evict(key)
        elif isinstance(key, TailKey):
            self._tails.pop(key.pane, None)
            self._unpacked.pop(key.pane, None)
            self._few_unpacked.pop(key.pane, None)
        else:
            self._panes.pop(key, None)
