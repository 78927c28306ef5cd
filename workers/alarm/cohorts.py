"""Cohorts as values: what all rows contain, the packed part of one longer than a pane, results by detector.

A detector is named `scope|slice`. The scope names its subject: `score`, `class:INDEX`, or `rater:NAME` for the
labels of one rater alone.

A unit is evidence once, in its first cohort, because its later outcomes depend on its first. The hashes of a model's named units are
stored by cohort, up to a bound. Beyond it the oldest cohorts are forgotten: a unit that returns after that counts as new.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Batch
from calibrant.core.hashing import U64
from calibrant.core.packing import PackingError, pack, unpack
from calibrant.core.pane import Pane
from calibrant.core.routing import ALL_ROWS
from calibrant.drift.cohort_tables import cohort_table, has_histograms
from calibrant.drift.unit_tables import DRIFT_BINS, UnitTable, merged
from calibrant.results.drift import RATER as RATER
from calibrant_server.workers.alarm.alarm_settings import NO_MAP, ActiveMap, AlarmSettings
from calibrant_server.workers.join.identified_rows import IdentifiedRows
from calibrant_server.workers.store.key_names import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig

FORMAT = 1
_MAX_BYTES = 1 << 21
_PLAIN = ("n", "has_units", "has_ratings", "has_histograms", "has_unnamed")


@dataclass(frozen=True)
class CohortContents:
    """Sealed contents of a cohort, for any scope."""

    n: int = 0  # number of predictions
    starts: tuple[int, ...] = ()  # starts of its panes, in seconds
    has_units: bool = False  # whether units were named, which several panes may contain
    has_ratings: bool = False  # whether some prediction has several ratings
    has_histograms: bool = False  # whether some arrived as plain histograms, which have no records
    has_unnamed: bool = False  # whether some labelled prediction has neither id nor unit

    @classmethod
    def of(cls, pane: Pane | None, starts: Iterable[int]) -> CohortContents:
        """Create from the pane of all rows."""
        if pane is None:
            return cls(starts=tuple(starts))
        counts, has_units = pane.counts, not pane["unit_sample"].is_empty
        found = has_units, counts["n_ratings"] > counts["n_labelled"], has_histograms(pane)
        return cls(counts["n_predictions"], tuple(starts), *found, counts["n_unit_from_row"] > 0)

    @property
    def units(self) -> FirstContacts | None:
        """No returning unit if each prediction is its own by its id; None if its panes do not show which units return."""
        is_own = not (self.has_units or self.has_histograms or self.has_unnamed)
        return FirstContacts(np.zeros(0, np.uint64), 0) if is_own else None

    def joined(self, more: CohortContents) -> CohortContents:
        """Return the sum with one more pane's."""
        flags = (getattr(self, name) or getattr(more, name) for name in _PLAIN[1:])
        return CohortContents(self.n + more.n, self.starts + more.starts, *flags)


@dataclass(frozen=True)
class PartialCohort:
    """The sealed part of a cohort that is longer than a pane and not completely sealed."""

    start_s: int  # start_s, end_s: start and end of the cohort
    end_s: int
    cohorts: dict[str, UnitTable]  # table by detector, so far
    made_of: str = ""  # name of the settings and the map that the tables depend on
    contents: CohortContents = field(default_factory=CohortContents)  # of all rows

    def joined(
        self, more: Mapping[str, UnitTable], contents: CohortContents, made_of: str
    ) -> PartialCohort:
        """Return the sum with one more pane's, whose tables depend on these settings and this map."""
        cohorts = dict(self.under(made_of).cohorts)
        for name, each in more.items():
            cohorts[name] = merged([cohorts[name], each]) if name in cohorts else each
        return PartialCohort(
            self.start_s, self.end_s, cohorts, made_of, self.contents.joined(contents)
        )

    def under(self, made_of: str) -> PartialCohort:
        """Return the cohort without tables that depend on other settings or another map."""
        return self if made_of == self.made_of else replace(self, cohorts={}, made_of=made_of)

    def pack(self) -> bytes:
        """Return the stored form."""
        arrays = {f"{i}.table": each.columns for i, each in enumerate(self.cohorts.values())}
        about: dict[str, Any] = {"gathered": FORMAT, "start": self.start_s, "end": self.end_s}
        about |= {"names": list(self.cohorts), "made_of": self.made_of}
        about |= {name: getattr(self.contents, name) for name in _PLAIN}
        return pack({"starts": np.array(self.contents.starts, np.int64), **arrays}, about)

    @classmethod
    def unpack(cls, data: bytes) -> PartialCohort:
        """Read what `pack` wrote; raises PackingError."""
        arrays, about = unpack(data, largest=_MAX_BYTES)
        if about.get("gathered") != FORMAT:
            raise PackingError(f"these bytes are not a partial cohort of format {FORMAT}")
        # The first of format 1 have counts apart, or only their tables, and do not state whether rows are unnamed.
        cohorts = {
            name: UnitTable(*arrays[f"{i}.table"], *arrays.get(f"{i}.coverage", ()))
            for i, name in enumerate(about["names"])
        }
        starts = tuple(int(each) for each in arrays.get("starts", ()))
        reported = {"has_unnamed": True} | {name: about[name] for name in _PLAIN if name in about}
        contents = CohortContents(starts=starts, **reported)
        return cls(about["start"], about["end"], cohorts, about.get("made_of", ""), contents)


def tables_of(
    settings: AlarmSettings, panes: Mapping[str, Pane], active_map: ActiveMap = NO_MAP
) -> dict[str, UnitTable]:
    """Return the cohort of each detector from the panes of its slice; omit what a pane does not contain."""
    found: dict[str, UnitTable] = {}
    if settings.rater is not None or (settings.is_mapped and active_map.is_lost):
        return found
    fitted = active_map.fitted if settings.is_mapped else None
    for slice_, scope in product(sorted(panes), settings.scopes):
        table = cohort_table(panes[slice_], scope, settings.raters, fitted)
        if table is not None:
            found[detector_name(scope, slice_)] = table
    return found


def detector_name(scope: str, slice_: str) -> str:
    """Return the name of a detector of a model. A rater's name may have any character, so the separator is escaped in a scope."""
    return f"{scope.replace('%', '%25').replace('|', '%7C')}|{slice_}"


def parts_of(name: str) -> tuple[str, str]:
    """Return scope and slice of a detector."""
    scope, _, slice_ = name.partition("|")
    return scope.replace("%7C", "|").replace("%25", "%"), slice_


def is_of_all(name: str) -> bool:
    """Whether a detector is of all rows and all raters."""
    return parts_of(name)[1] == ALL_ROWS and rater_in(name) is None


def rater_in(name: str) -> str | None:
    """Return the rater whose labels alone a detector uses; None if it uses all."""
    scope, _ = parts_of(name)
    return scope.removeprefix(RATER) if scope.startswith(RATER) else None


# 2 MiB of hashes: 200 new units a day for three and a half years.
MAX_UNITS, UNIT_BYTES = 1 << 18, 8
FIRST_CONTACTS, UNKNOWN = "first_contacts_only", "units_unknown"


@dataclass(frozen=True)
class SeenUnits:
    """The named units of earlier cohorts: their hashes by start of the cohort."""

    by_cohort: Mapping[int, U64] = field(default_factory=dict)

    def without(
        self, rows: IdentifiedRows, batch: Batch, start_s: int
    ) -> tuple[IdentifiedRows, Batch, FirstContacts]:
        """Return the rows of units that are new in this cohort, and what was left out.

        Rows without a named unit are units of their own and stay.
        """
        named = rows.names.group >= 0
        hashes = np.unique(batch.unit_hash[named])
        before = [units for start, units in self.by_cohort.items() if start < start_s]
        known = np.isin(hashes, np.concatenate(before)) if before else np.zeros(len(hashes), bool)
        out = named & np.isin(batch.unit_hash, hashes[known])
        found = FirstContacts(hashes[~known], int(known.sum()))
        if not out.any():
            return rows, batch, found
        return rows.where(~out), batch.take(np.flatnonzero(~out)), found

    def forgotten(self, n_new: int) -> list[int]:
        """Return the cohorts to forget, oldest first, so that so many new units fit."""
        total, lost = n_new + sum(map(len, self.by_cohort.values())), []
        for start, units in sorted(self.by_cohort.items()):
            if total <= MAX_UNITS:
                break
            total -= len(units)
            lost.append(start)
        return lost


@dataclass(frozen=True)
class FirstContacts:
    """Units of a cohort: hashes of the new ones, at most the bound, and the number of those that were left out."""

    new: NDArray[np.uint64]
    n_left_out: int

    def pack(self) -> bytes:
        """Return the stored form."""
        return self.new[:MAX_UNITS].astype("<u8").tobytes()


def units_key(keys: PartitionKeys, model: str, generation: str) -> str:
    """Return the key of a model's seen units."""
    return keys.cohort_results(model, generation, "*units")


def read_units(node: Any, keys: PartitionKeys, config: ModelConfig) -> SeenUnits:
    """Read the seen units of a model."""
    found = node.hgetall(units_key(keys, config.key, config.generation))
    hashes = {int(start): np.frombuffer(packed, "<u8") for start, packed in found.items()}
    return SeenUnits({start: each.astype(np.uint64) for start, each in hashes.items()})


MAX_COHORTS = 400
MAX_COHORTS_OF_SLICE = 100
# The first cohorts of Before are never dropped, so that a slow drift is not absorbed.
N_FIRST = 28
_COHORT_RESULT = struct.Struct("<Bdd")
COHORT_RESULT_FORMAT = 2


@dataclass(frozen=True)
class CohortResult:
    """Result of one cohort for one detector."""

    cohort: int  # its start in seconds
    p: float  # of a change for the worse, by the cohorts until this one
    level: float  # at which a change is shown
    table: UnitTable  # UnitTable, to the nearest float32, with exact counts

    def pack(self) -> bytes:
        """Return the stored form."""
        sums, counts = self.table.columns[:5].astype("<f4"), self.table.columns[5:].astype("<u4")
        body = zlib.compress(sums.tobytes() + counts.tobytes(), 1)
        return self.head_of(self.p, self.level) + body

    @staticmethod
    def head_of(p: float, level: float) -> bytes:
        """Return what the stored form has before its compressed tables."""
        return _COHORT_RESULT.pack(COHORT_RESULT_FORMAT, p, level)

    @classmethod
    def unpack(cls, cohort: int, data: bytes) -> CohortResult:
        """Read what `pack` wrote; raises PackingError."""
        if not data or data[0] != COHORT_RESULT_FORMAT:
            raise PackingError(f"this is not a cohort result of format {COHORT_RESULT_FORMAT}")
        _, p, level = _COHORT_RESULT.unpack_from(data)
        body = zlib.decompress(data[_COHORT_RESULT.size :])
        sums = np.frombuffer(body, "<f4", 5 * DRIFT_BINS).reshape(5, -1).astype(np.float64)
        counts = np.frombuffer(body, "<u4", 2 * DRIFT_BINS, sums.size * 4).reshape(2, -1)
        return cls(cohort, p, level, UnitTable(*sums).counted(counts))

    @property
    def is_labelled(self) -> bool:
        """Whether it has labelled units."""
        return self.table.n_units > 0

    def stored(self) -> CohortResult:
        """Return the result as it is read again, so that a detector sees the same sums in every evaluation."""
        return CohortResult.unpack(self.cohort, self.pack())


def kept_cohorts(name: str) -> int:
    """Return how many of the latest results of a detector are stored; fewer for a slice or a rater."""
    return MAX_COHORTS if is_of_all(name) else MAX_COHORTS_OF_SLICE


def lost_cohorts(name: str, cohorts: Sequence[int], begun: int | None) -> list[int]:
    """Return the cohorts whose results are dropped: all but the latest, and the first 28 since the start of Before.

    cohorts : starts of its stored results, in order

    >>> lost_cohorts("score|site:A", range(200), 50) == [*range(50), *range(78, 100)]
    True
    """
    first = {each for each in cohorts if begun is not None and each >= begun}
    protected = set(sorted(first)[:N_FIRST])
    return [each for each in cohorts[: -kept_cohorts(name)] if each not in protected]


def since_change(
    results: Sequence[CohortResult], start: int, until: int | None = None
) -> tuple[UnitTable, UnitTable]:
    """Return the cohorts from the start of a change until the alarm, and those after it."""
    begun = [each for each in results if each.cohort >= start]
    first = [each.table for each in begun if until is None or each.cohort <= until]
    later = [each.table for each in begun if until is not None and each.cohort > until]
    return merged(first), merged(later)
