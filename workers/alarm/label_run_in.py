"""The run-in of labels: whether cohorts are sealed with nearly all labels of each class that ever arrive.

Labels of one class that arrive later than those of the other make a calibrated model look wrong in every sealed cohort. Until at
least 98 % of each class were known at sealing, evidence counts pending labels at their least favourable value. A cohort is compared
with its labels one label horizon later. Predictions that never get a label do not count.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import scipy

from calibrant.core.routing import ALL_ROWS
from calibrant.drift.unit_tables import UnitTable, merged, unit_table
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.stored_panes import read_pane
from calibrant_server.workers.store.keys import LAST_CHANGE, PaneKey, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.slice_names import sealed_slice

MIN_COVERAGE = 0.98
MIN_COHORTS = 7
_LEVEL = 0.95
_EXPIRED = 0.9


@dataclass(frozen=True)
class LabelRunIn:
    """Labels at sealing and later, by label of the score: 1 and 0.

    Attributes
    ----------
    sealed, later : units of each label at sealing, and one label horizon later
    n_cohorts : cohorts compared
    last : the last of them
    """

    sealed: tuple[float, float] = (0.0, 0.0)
    later: tuple[float, float] = (0.0, 0.0)
    n_cohorts: int = 0
    last: int | None = None

    @property
    def coverage(self) -> tuple[float | None, float | None]:
        """Share of each label that was known at sealing; None without any."""
        one, zero = (
            min(1.0, a / b) if b > 0 else None for a, b in zip(self.sealed, self.later, strict=True)
        )
        return one, zero

    @property
    def is_complete(self) -> bool:
        """Whether the lower limit of each label's coverage (Clopper and Pearson, 95 %) is at least 0.98."""
        return self.n_cohorts >= MIN_COHORTS and all(
            _lower_limit(a, b) >= MIN_COVERAGE for a, b in zip(self.sealed, self.later, strict=True)
        )

    def compared(self, start_s: int, sealed: UnitTable, later: UnitTable) -> LabelRunIn:
        """Return the record with one more cohort; one without labels, or of which panes have expired, changes only `last`."""
        if later.n_units < max(_EXPIRED * sealed.n_units, 1.0):
            return replace(self, last=start_s)
        before, after = _by_label(sealed), _by_label(later)
        return LabelRunIn(
            (self.sealed[0] + before[0], self.sealed[1] + before[1]),
            (self.later[0] + max(after[0], before[0]), self.later[1] + max(after[1], before[1])),
            self.n_cohorts + 1,
            start_s,
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, stored: dict[str, Any] | None) -> LabelRunIn:
        """Read the stored form."""
        if stored is None:
            return cls()
        sealed, later = (tuple(map(float, stored[name])) for name in ("sealed", "later"))
        return cls(
            (sealed[0], sealed[1]), (later[0], later[1]), stored["n_cohorts"], stored["last"]
        )


def read_labels(
    node: Any, keys: PartitionKeys, config: ModelConfig, start_s: int, end_s: int, raters: str
) -> tuple[UnitTable, UnitTable]:
    """Return the labelled units of a cohort as sealed, and as they are now."""
    return (
        _table(node, keys, config, sealed_slice(ALL_ROWS), (start_s, end_s), raters),
        _table(node, keys, config, ALL_ROWS, (start_s, end_s), raters),
    )


def _table(
    node: Any,
    keys: PartitionKeys,
    config: ModelConfig,
    slice_: str,
    window: tuple[int, int],
    raters: str,
) -> UnitTable:
    model, numerics = (config.key, config.generation), Numerics()
    names = (name.decode() for name in node.hkeys(keys.versions(*model, slice_)))
    starts = [int(name) for name in names if name != LAST_CHANGE]
    return merged(
        unit_table(
            read_pane(node, keys, numerics, config, PaneKey(*model, slice_, start))[0], raters
        )
        for start in sorted(starts)
        if window[0] <= start < window[1]
    )


def _by_label(table: UnitTable) -> tuple[float, float]:
    correct = float(table.correct.sum())
    return correct, float(table.n_units) - correct


def _lower_limit(found: float, n: float) -> float:
    if n <= 0:
        return 0.0
    found = min(found, n)
    return (
        float(scipy.special.betaincinv(found, n - found + 1.0, 1.0 - _LEVEL)) if found > 0 else 0.0
    )
