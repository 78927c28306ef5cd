"""One simulation of the table, which serves a row per metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.validation.settings import TUNED_ON

TABLE_RUNS = 3500


@dataclass(frozen=True)
class Block:
    """Simulation of one setting.

    Attributes
    ----------
    section : of the promises, as a heading of the table
    check : name of the function that counts, in `CHECKS` of the row's module
    setting : what is simulated
    slugs : one row each
    promise : lowest (or highest) share that is promised
    at_least : whether `promise` is a lower limit
    runs, seed : of the simulation
    full : only with FULL=1
    must : metrics whose interval must be given in this setting
    """

    section: str
    check: str
    setting: Any
    slugs: tuple[str, ...]
    promise: float
    seed: int
    at_least: bool = True
    runs: int = TABLE_RUNS
    full: bool = False
    must: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        if isinstance(self.setting, tuple):
            return " minus ".join(each.text for each in self.setting)
        return str(self.setting.text)

    @property
    def tuned_on(self) -> bool:
        """Whether constants of the library were chosen on scores of this shape."""
        first = self.setting[0] if isinstance(self.setting, tuple) else self.setting
        return getattr(first, "shape", "") in TUNED_ON and getattr(first, "n_classes", 2) == 2
