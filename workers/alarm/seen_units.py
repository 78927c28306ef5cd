"""Units that earlier cohorts counted: a unit is evidence once, in its first cohort, because its later outcomes depend on its first.

The hashes of a model's named units are stored by cohort, up to a bound. Beyond it the oldest cohorts are forgotten: a unit that
returns after that counts as new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Batch
from calibrant.core.hashing import U64
from calibrant_server.workers.join.identified_rows import IdentifiedRows
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig

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
    return SeenUnits(
        {
            int(start): np.frombuffer(packed, "<u8").astype(np.uint64)
            for start, packed in found.items()
        }
    )
