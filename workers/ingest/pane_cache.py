"""State of a partition that a commit changes: tails, panes and samples.

A commit appends rows to the tail of their time slice. Only where the tail is larger than the panes that it feeds are these
read, filled and written, and the tail removed. Posted panes and histograms change stored sums.

It is changed in place while a commit is prepared. This is safe because every outcome but a written commit drops all of it.
After a written one it is in the cache that the partitions of a process share (`state_cache.py`).

A commit that changes a slice of a day in files (`cold_days`) brings it back to the store first. Such a day has no tails.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from calibrant.core.hashing import hash_names
from calibrant.core.packing import PackingError
from calibrant.core.pane import Pane
from calibrant_server.workers.ingest.baseline_samples import BaselineSamples
from calibrant_server.workers.ingest.cached_pane import (
    MAX_TAIL_BYTES,
    CachedPane,
    CachedTail,
    UnreadablePane,
    total_field,
)
from calibrant_server.workers.ingest.joined_model import ChangedRows
from calibrant_server.workers.ingest.pane_places import PanePlaces, model_of
from calibrant_server.workers.ingest.posted_sums import Claim, LiftedSample
from calibrant_server.workers.ingest.reduce import NewRows, Numerics
from calibrant_server.workers.ingest.sample_cache import (
    CachedSample,
    SampleCache,
    SampleKey,
    pane_order,
    write_versions,
)
from calibrant_server.workers.ingest.state_cache import StateCache, TailKey
from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.segments.sampled import sampled
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.day_file import pane_item
from calibrant_server.workers.store.key_names import PaneKey, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.slice_names import sealed_slice

# Models whose slices are known to be listed; a slice that is not known is listed again.
MAX_KNOWN_MODELS = 1000


class PaneCache:
    """Tails, panes and samples of one partition.

    Parameters
    ----------
    shared : what the last commits of the process left
    """

    def __init__(self, store: Store, keys: PartitionKeys, numerics: Numerics, shared: StateCache):
        self._store = store
        self._keys = keys
        self._numerics = numerics
        self._shared = shared
        self._panes: dict[PaneKey, CachedPane] = {}
        self._tails: dict[PaneKey, CachedTail] = {}
        self._slices: dict[tuple[str, str], set[str]] = {}
        self._changed: set[PaneKey] = set()
        self._changed_tails: set[PaneKey] = set()
        self._posted: set[PaneKey] = set()
        self._fed: set[PaneKey] = set()
        node = store.node(keys.partition)
        self._places = PanePlaces(node, keys)
        self._cold = self._places.cold
        self._samples = SampleCache(
            node, keys, store.settings.sample_bytes, self._cold, self._taken
        )
        self._baselines = BaselineSamples(node, keys, numerics)

    def _taken(self, key: Hashable) -> Any:
        """Take out of the shared cache what this run will use; None if it is not there."""
        return self._shared.take(self._keys.partition, key)

    def forget(self) -> None:
        """Drop everything: the state of the store is unknown."""
        self._shared.forget(self._keys.partition)
        self._places.forget()
        self._baselines.forget()
        for cached in (self._panes, self._tails, self._samples.used, self._slices):
            cached.clear()
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
        """Load panes and tails that are not in memory, in one round trip; raise UnreadablePane.

        Parameters
        ----------
        tails : by the pane of all rows of their time slice
        """
        wanted, tails = list(wanted), list(tails)
        self._places.know((*wanted, *tails))
        missing = self._missing(self._panes, map(self._places.place, wanted), lambda key: key)
        here = (key for key in tails if not self._places.is_old(key))
        missing_tails = self._missing(self._tails, here, TailKey)
        if not missing and not missing_tails:
            return
        in_files = self._places.of_files(missing)
        with self._store.node(self._keys.partition).pipeline(transaction=False) as pipe:
            for key in missing:
                pipe.hgetall(self._keys.pane(key))
            for key in missing_tails:
                pipe.hgetall(self._keys.tail(key))
            found = pipe.execute()
        for key, fields in zip(missing, found, strict=False):
            spec = self._numerics.spec(configs[key.model, key.generation])
            fields = in_files.get(key, fields)
            self._panes[key] = CachedPane.read(key, fields, spec, self._numerics)
        for key, fields in zip(missing_tails, found[len(missing) :], strict=True):
            self._tails[key] = self._read_tail(key, fields)

    def _missing(
        self,
        known: dict[PaneKey, Any],
        wanted: Iterable[PaneKey],
        cached_as: Callable[[PaneKey], Hashable],
    ) -> list[PaneKey]:
        """Add to `known` what the shared cache has of the wanted ones; return the others."""
        missing = []
        for key in dict.fromkeys(wanted):
            if key not in known:
                found = self._taken(cached_as(key))
                if found is None:
                    missing.append(key)
                else:
                    known[key] = found
        return missing

    def _read_tail(self, key: PaneKey, fields: dict[bytes, bytes]) -> CachedTail:
        try:
            return CachedTail(self._numerics.rows, fields)
        except PackingError as error:
            raise UnreadablePane(key, error) from error

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
        is_old = self._places.is_old(key)
        tail = CachedTail(self._numerics.rows) if is_old else self._tails[key]
        added = self._rows_of(tail.next_part, new, change)
        self._fed |= {self._places.place(replace(key, slice=slice_)) for slice_ in added.n_by_slice}
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
        added = [] if new is None or new.rows is None else [new.rows.numbered_from(part)]
        if change is not None:
            first = int(added[0].part.max()) + 1 if added else part
            added += change.rows(first)
        return self._numerics.rows.together(added)

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
        place = self._places.place(key)
        cached = self._panes.get(place) or self._shared.get(self._keys.partition, place)
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

    def fold(self, key: PaneKey, config: ModelConfig) -> bool:
        """Make sums of the rows of a fetched tail; return whether there are any. Raise UnreadablePane."""
        tail = self._tails.get(key)
        if tail is None or not tail.data:
            return False
        self._changed_tails.add(key)
        self._fill(key, config, tail.all_rows())
        tail.clear()
        return True

    def _fill(self, key: PaneKey, config: ModelConfig, rows: Rows) -> None:
        """Fill rows into the sums of every slice."""
        spec = self._numerics.spec(config)
        sample = self._sample(key)
        panes = {slice_: replace(key, slice=slice_) for slice_ in rows.n_by_slice}
        self.fetch(panes.values(), (), {(config.key, config.generation): config})
        for slice_, name in panes.items():
            pane = self._panes[self._places.place(name)].pane
            rows.fill_into(pane, slice_, lambda: self._numerics.empty(spec))
            self._changed.add(self._places.place(name))
        if sample is not None:
            sample.add(sampled(rows.net, key.start_s, sample.halvings))

    def _sample(self, key: PaneKey) -> CachedSample | None:
        """Return the sample that has a pane's rows; None where none is stored."""
        if not (self._numerics.keeps_samples and self._samples.max_bytes):
            return None
        with self._places.readable(key):
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
        self._panes[self._places.place(key)].pane.merge(delta)
        self._note_posted(key)

    def _note_posted(self, key: PaneKey) -> None:
        self._changed.add(self._places.place(key))
        self._posted.add(self._places.place(key))

    def claim(self, claim: Claim) -> str:
        """Replace the earlier running total of a source by a newer one; return the outcome."""
        cached = self._panes[self._places.place(claim.pane)]
        self._note_posted(claim.pane)
        is_daily = claim.pane.start_s < self._places.marks_of(claim.pane).daily_to
        name = total_field(claim.name, claim.pane.start_s if is_daily else None)
        return cached.replace_total(name, claim, self._numerics)

    def write(self, commit: Commit, version: bytes) -> None:
        """Write all changes into a commit. Panes whose rows only became sums keep their version."""
        panes = [(model_of(key), pane_item(key)) for key in self._changed]
        self._cold.bring_back(commit, panes + self._samples.changed())
        for key in sorted(self._changed_tails, key=pane_order):
            self._tails[key].write(self._keys.tail(key), commit)
        renewed = {*self._fed, *self._samples.renewed()}
        self._samples.write(commit, version)
        if self._baselines.changed:
            self._baselines.write(commit, version)
        for key in sorted(self._changed, key=pane_order):
            if self._write(key, commit) and key in self._posted:
                renewed.add(key)
            self._panes[key].pane.tighten()
        self._write_versions(renewed, commit, version)
        self._forget_changes()

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

    def _write_versions(self, panes: set[PaneKey], commit: Commit, version: bytes) -> None:
        for key in sorted(panes, key=pane_order):
            model = model_of(key)
            known = self._slices.setdefault(model, set())
            if key.slice not in known:
                commit.add_member(self._keys.slices(*model), key.slice)
                known.add(key.slice)
        write_versions(panes, commit, self._keys, version)

    def trim(self) -> None:
        """Leave what the run used to the shared cache. Call it only right after a written commit."""
        tails = {TailKey(key): tail for key, tail in self._tails.items()}
        self._shared.put(self._keys.partition, {**self._panes, **tails, **self._samples.used})
        for used in (self._panes, self._tails, self._samples.used):
            used.clear()
        if len(self._slices) > MAX_KNOWN_MODELS:
            self._slices.clear()
