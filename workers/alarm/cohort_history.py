"""What the rule of change compares: the results of each cohort for each detector, and the model's reference, one block before them."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibrant.core.packing import PackingError
from calibrant.core.pane import Pane
from calibrant.drift.change import Effects
from calibrant.drift.evaluation import effects_of
from calibrant.drift.unit_tables import DRIFT_BINS, UnitTable, merged
from calibrant_server.workers.alarm.cohorts import is_of_all
from calibrant_server.workers.ingest.baseline_samples import START_S
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.stored_panes import read_pane
from calibrant_server.workers.store.keys import PaneKey, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.slice_names import baseline_slice
from calibrant_server.workers.store.windows import Window

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

    Parameters
    ----------
    cohorts : starts of its stored results, in order

    Examples
    --------
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


REFERENCE = "reference"


@dataclass(frozen=True)
class Before:
    """What is before the first live cohort of a detector.

    Attributes
    ----------
    window : of the live data that it was frozen from: their cohorts are not counted again
    """

    block: Effects | None = None  # effects of the reference as one block, None without a reference
    window: Window = Window(0, 0)  # noqa: RUF009


@dataclass(frozen=True)
class Reference:
    """Tables of the reference by detector, empty without one; and the window of live data that it was frozen from."""

    tables: Mapping[str, UnitTable] = field(default_factory=dict)
    window: Window = Window(0, 0)  # noqa: RUF009

    def of(self, name: str) -> Before:
        """Return what is before the first live cohort of a detector."""
        table = self.tables.get(name)
        if table is None or not table.n_units:
            return Before()
        return Before(effects_of([table]), self.window)


def read_reference(
    node: Any, keys: PartitionKeys, config: ModelConfig
) -> tuple[Pane, Window] | None:
    """Return the pane of the reference and the window that it was frozen from; None without a reference."""
    text = node.hget(keys.baselines(config.key, config.generation), REFERENCE)
    if text is None:
        return None
    key = PaneKey(config.key, config.generation, baseline_slice(REFERENCE), START_S)
    pane = read_pane(node, keys, Numerics(), config, key)[0]
    return pane, Window(*json.loads(text)["window"])
