"""Rows of section 3: the interval of the temperature, also where units depend and where few are incorrect."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from benchmarks.guarantees.block import Block
from benchmarks.validation.checks import Check, Counts
from benchmarks.validation.settings import Setting, Units, rows_of
from calibrant import Batch, Pane, PaneSpec
from calibrant.calibrators.temperature.fit import fit_temperature

TRUE = {"calibrated": 1.0, "slope .8": 1.0 / 0.8, "slope .6": 1.0 / 0.6}


def temperature(setting: Setting, slugs: tuple[str, ...], seed: int, runs: range) -> Counts:
    """Count runs whose interval holds the true temperature, of those with one."""
    return _held(setting, slugs[0], "nll", seed, runs)


def by_brier(setting: Setting, slugs: tuple[str, ...], seed: int, runs: range) -> Counts:
    """Count the same for the temperature of the lowest Brier score."""
    return _held(setting, slugs[0], "brier", seed, runs)


def _held(setting: Setting, name: str, objective: str, seed: int, runs: range) -> Counts:
    counts: Counts = defaultdict(float)
    true = TRUE[setting.curve]
    for run in runs:
        rows = rows_of(setting, np.random.default_rng([seed, 0, run]))
        columns: dict[str, object] = {"confidences": rows.score, "labels": rows.label}
        if rows.unit is not None:
            columns["units"] = [f"{run}-{unit}" for unit in rows.unit.tolist()]
        pane = Pane(PaneSpec("binary", 2))
        pane.fill_batch(Batch.from_columns(columns).batch)
        interval = fit_temperature(pane, objective=objective)["interval"]
        counts[f"{name}/runs"] += 1
        if interval is None or None in interval:
            continue
        counts[f"{name}/given"] += 1
        counts[f"{name}/held"] += interval[0] <= true <= interval[1]
    return counts


CHECKS: dict[str, Check] = {"temperature": temperature, "temperature by Brier": by_brier}


def blocks() -> tuple[Block, ...]:
    """Return the rows of this section."""
    settings = (
        Setting("beta", "calibrated", 30),
        Setting("confident", "calibrated", 100),
        Setting("u-shaped", "slope .6", 300),
        Setting("confident", "slope .6", units=Units(40, 25, 0.3)),
    )
    return tuple(
        Block("3 Temperature", check, setting, (name,), 0.93, seed + i)
        for check, name, seed in (
            ("temperature", "temperature", 500),
            ("temperature by Brier", "temperature(objective=brier)", 510),
        )
        for i, setting in enumerate(settings)
    )
