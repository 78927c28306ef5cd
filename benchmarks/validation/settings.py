"""Simulated models: shapes of scores, curves of outcomes, weights and units. A setting and a seed give the rows of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.core.batch import Batch
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.spec import PaneSpec
from calibrant.core.view import View

Floats = NDArray[np.float64]
Rng = np.random.Generator
N_POPULATION = 1_000_000

# Constants of the library were chosen on the first two shapes. The others judge them.
SHAPES: dict[str, Callable[[Rng, int], Floats]] = {
    "beta": lambda rng, n: rng.beta(0.7, 2.2, n),
    "uniform": lambda rng, n: rng.uniform(0.05, 0.95, n),
    "u-shaped": lambda rng, n: rng.beta(0.5, 0.5, n),
    "confident": lambda rng, n: 1.0 - 0.9 * rng.beta(0.6, 3.0, n),
    "accurate": lambda rng, n: rng.beta(0.3, 60.0, n),
    "corner": lambda rng, n: rng.uniform(0.935, 0.999, n),
}
TUNED_ON = ("beta", "uniform")


def _odds(score: Floats) -> Floats:
    return np.asarray(scipy.special.logit(np.clip(score, 1e-12, 1.0 - 1e-12)))


def _shifted(score: Floats, lower: float, upper: float, by: float) -> Floats:
    """Return scores as rates, shifted between two limits only."""
    inside = (score > lower) & (score <= upper)
    return np.clip(score + by * inside, 0.0, 1.0)


CONFUSED = "three tenths of class 0 are class 1"
CURVES: dict[str, Callable[[Floats], Floats]] = {
    "calibrated": lambda score: score,
    "slope .6": lambda score: scipy.special.expit(0.6 * _odds(score)),
    "slope .8": lambda score: scipy.special.expit(0.8 * _odds(score)),
    "flat": lambda score: np.full_like(score, 0.967),
    "one bin off by .3": lambda score: _shifted(score, 7 / 15, 8 / 15, -0.3),
    "two bins off by .2": lambda score: _shifted(score, 3 / 15, 5 / 15, 0.2),
    "top bin off by .1": lambda score: _shifted(score, 14 / 15, 1.0, -0.1),
}


@dataclass(frozen=True)
class Units:
    """Named units: how many, rows of each, share of rows that share the unit's luck, and whether a unit has one score."""

    n: int
    size: int
    shared: float
    one_score: bool = False


@dataclass(frozen=True)
class Setting:
    """A simulated model. `weights` is the standard deviation of log weights; `n_classes` above 2 has Dirichlet rows of `raters` ratings."""

    shape: str = "beta"
    curve: str = "calibrated"
    n: int = 300
    weights: float = 0.0
    units: Units | None = None
    n_classes: int = 2
    binning: str = "equal_width"
    scope: str | None = None
    raters: int = 1

    @property
    def text(self) -> str:
        """The setting as a cell of the table."""
        shape = self.shape if self.n_classes == 2 else "dirichlet"
        parts = [f"K = {self.n_classes}, {shape}, {self.curve}"]
        if self.units is None:
            parts.append(f"n = {self.n:,}")
        else:
            scores = "one score each" if self.units.one_score else "own scores"
            parts.append(
                f"{self.units.n} units of {self.units.size:,}, {scores}, {100 * self.units.shared:.0f} % shared"
            )
        if self.weights:
            parts.append(f"weights lognormal({self.weights})")
        if self.binning != "equal_width":
            parts.append(self.binning)
        if self.scope is not None:
            parts.append(f"scope {self.scope}")
        if self.raters > 1:
            parts.append(f"{self.raters} raters")
        return ", ".join(parts)


@dataclass(frozen=True)
class SimulatedRows:
    """Rows of one run. `rate` is the true probability of a label: (n,) of class 1, or (n, n_classes).

    `label` has classes, (n,), or label counts, (n, n_classes).
    """

    score: Floats
    rate: Floats
    label: NDArray[np.int64]
    weight: Floats | None = None
    unit: NDArray[np.int64] | None = None


def rows_of(setting: Setting, rng: Rng) -> SimulatedRows:
    """Draw the rows of a run."""
    if setting.n_classes > 2:
        return _rows_of_classes(setting, rng)
    units = setting.units
    if units is None:
        score = SHAPES[setting.shape](rng, setting.n)
        rate, luck, unit = CURVES[setting.curve](score), rng.random(setting.n), None
    else:
        n, unit = units.n * units.size, np.repeat(np.arange(units.n), units.size)
        draw = SHAPES[setting.shape]
        score = draw(rng, units.n)[unit] if units.one_score else draw(rng, n)
        rate = CURVES[setting.curve](score)
        luck = np.where(rng.random(n) < units.shared, rng.random(units.n)[unit], rng.random(n))
    weight = np.exp(rng.normal(0.0, setting.weights, len(score))) if setting.weights else None
    return SimulatedRows(score, rate, (luck < rate).astype(np.int64), weight, unit)


def _rows_of_classes(setting: Setting, rng: Rng) -> SimulatedRows:
    score = rng.dirichlet(np.full(setting.n_classes, 0.4), setting.n)
    if setting.curve == CONFUSED:
        rate = score.copy()
        rate[:, 1] += 0.3 * rate[:, 0]
        rate[:, 0] *= 0.7
    else:
        slope = {"calibrated": 1.0, "slope .6": 0.6, "slope .8": 0.8}[setting.curve]
        rate = scipy.special.softmax(slope * np.log(np.maximum(score, 1e-300)), axis=1)
    if setting.raters > 1:
        return SimulatedRows(score, rate, rng.multinomial(setting.raters, rate))
    label = (rng.random((setting.n, 1)) > rate.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return SimulatedRows(score, rate, label)


def view_of(setting: Setting, rows: SimulatedRows, run: int = 0) -> View:
    """Fill a pane with the rows of a run."""
    several = setting.n_classes > 2
    columns: dict[str, object] = {
        ("probabilities" if several else "confidences"): rows.score,
        ("label_counts" if rows.label.ndim > 1 else "labels"): rows.label,
    }
    if rows.weight is not None:
        columns["weights"] = rows.weight
    if rows.unit is not None:
        # Other names in every run, so that units fall into other replicates.
        columns["units"] = [f"{run}-{unit}" for unit in rows.unit.tolist()]
    batch = Batch.from_columns(columns).batch
    pane = Pane(PaneSpec("multiclass", setting.n_classes) if several else PaneSpec("binary", 2))
    pane.fill_batch(batch)
    return View(pane, PaneQuery(binning=setting.binning, scope=setting.scope))


@lru_cache(maxsize=4)
def population(setting: Setting) -> SimulatedRows:
    """Return very many rows of a setting, to compute true errors from their rates."""
    few = 200_000 if setting.n_classes > 2 else N_POPULATION
    free = Setting(
        setting.shape, setting.curve, few, n_classes=setting.n_classes, raters=setting.raters
    )
    return rows_of(free, np.random.default_rng(2718))
