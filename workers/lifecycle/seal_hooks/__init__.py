"""What is done with a sealed cohort, one file each.

A file has `sealed(commit, keys, node, config, cohort, panes)`. It is called once a cohort, in the order of time, with the
merged pane of every slice that has one, `""` (all rows) among them, while the commit that seals the cohort is being made: what
it adds to the commit is written together with the sealed panes or not at all. It may read the store through `node`. The
panes are shared and must not be changed. What it keeps belongs under `PartitionKeys` names of the model's generation, and in
`calibrant_server.workers.lifecycle.expiry.remove_records`, so that it goes when the model goes.
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
        """Grows with time, by one from a pane to the next."""
        return self.start_s // self.length_s


OnSealed = Callable[[Any, Any, Any, Any, SealedCohort, Mapping[str, Any]], None]


def find_hooks() -> list[OnSealed]:
    """Every `sealed` of the folder, by name of its file."""
    names = sorted(each.name for each in iter_modules(__path__))
    return [import_module(f"{__name__}.{name}").sealed for name in names]
