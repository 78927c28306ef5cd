"""Hooks for a sealed cohort, one file each.

A file has `sealed(commit, keys, node, config, cohort, panes)`. It is called once per cohort, in order of time, while the
commit that seals the cohort is being prepared. `panes` has the merged pane of each slice that has one, including `""` (all
rows). What the hook adds to the commit is written together with the sealed panes or not at all. It may read the store
through `node`. The panes are shared and must not be changed. Store its data under `PartitionKeys` names of the model's
generation, and remove them in `calibrant_server.workers.lifecycle.expiry.remove_records` when the model is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any


@dataclass(frozen=True)
class SealedCohort:
    """The predictions of one pane of event time, in seconds since the epoch."""

    start_s: int
    length_s: int

    @property
    def end_s(self) -> int:
        return self.start_s + self.length_s

    @property
    def number(self) -> int:
        """Index that increases by one from a pane to the next."""
        return self.start_s // self.length_s


OnSealed = Callable[[Any, Any, Any, Any, SealedCohort, Mapping[str, Any]], None]


def find_hooks() -> list[OnSealed]:
    """Return each `sealed` of the folder, by file name."""
    names = sorted(each.name for each in iter_modules(__path__))
    return [import_module(f"{__name__}.{name}").sealed for name in names]
