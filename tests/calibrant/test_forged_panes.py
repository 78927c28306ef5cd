"""Forged panes with valid checksums: they are rejected, or every result of them is a finite number or a reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calibrant import CalibrationInputError, Pane
from calibrant.accumulators import accumulators
from calibrant.accumulators.block import Block
from calibrant.accumulators.named_cases import Cases
from calibrant.accumulators.sample import Sample
from calibrant.accumulators.unit_sample import UnitSample
from calibrant.calibrators import MAPS, Options, fit
from calibrant.calibrators.temperature.fit import fit_temperature
from calibrant.core.label_policies import POLICIES
from calibrant.core.packing import PackingError, pack
from calibrant.core.pane_validation import check_pane
from calibrant.core.query import PaneQuery, default_bins
from calibrant.core.view import NoResultError, View
from calibrant.drift.calibration import judge
from calibrant.drift.evaluation import effects_of, evaluate
from calibrant.drift.recommendation import temperature_of
from calibrant.drift.unit_tables import unit_table
from calibrant.inference.reliability_table import reliability
from calibrant.metrics import METRICS, compute_metrics
from calibrant.results.drift_bins import bin_rows
from tests.calibrant.panes import SHAPE, SPECS, batches_of, pane_of

EXTREME = (0.0, 5e-324, 1e-300, 1e-60, -1e-7, -1.0, 1.0, 1e15, 1e24, 1e60, 1e149)
WHOLE = (0, 1, 2, 5, 2**31, 2**52)
Column = NDArray[Any]
PANES = 5  # of each specification; more of them, and other seeds, after a change of the ranges


def change(values: Column, rng: np.random.Generator) -> None:
    """Change one value of a column, or all of them, in place."""
    n, complete = len(values), values.dtype.kind in "iu"
    if not n:
        return
    at: Any = slice(None) if rng.random() < 0.4 else int(rng.integers(n))
    factor = (
        rng.choice([0, 2, 3]) if complete else rng.choice([0.0, 0.5, 1.001, 1.5, 1e-40, 1e12, -1.0])
    )
    changes: list[Callable[[], Any]] = [
        lambda: values[at] * factor,
        lambda: rng.choice(WHOLE if complete else EXTREME),
        lambda: rng.permutation(values)[at],
        lambda: values[at] + (1 if complete else rng.choice([1e-6, 0.3, 100.0])),
        lambda: np.roll(values, 1)[at],
    ]
    with np.errstate(all="ignore"):
        values[at] = np.asarray(changes[rng.integers(len(changes))]()).astype(values.dtype)


def change_block(block: Block, rng: np.random.Generator) -> None:
    places, counts, sums = (each.copy() for each in block.filled())
    rows = [*counts, *sums]
    for _ in range(rng.integers(1, 4)):
        change(rows[rng.integers(len(rows))], rng)
    if rng.random() < 0.1 and len(places):
        places = np.sort(rng.choice(block.size, len(places), replace=False))
    there = counts[0] != 0
    block._places, block._counts, block._sums = places[there], counts[:, there], sums[:, there]


def change_part(part: Any, rng: np.random.Generator) -> None:
    if isinstance(part, Sample):
        name = ("weights", "counts", "scores", "units", "logits")[rng.integers(5)]
        values = getattr(part._rows, name).copy()
        change(values.reshape(-1), rng)
        object.__setattr__(part._rows, name, values)
    elif isinstance(part, UnitSample):
        part.batches = part.batches.copy()
        change(part.batches, rng)
    elif part.blocks:
        change_block(list(part.blocks.values())[rng.integers(len(part.blocks))], rng)
        if isinstance(part, Cases):
            part.tables = {name: block for name, block in part.tables.items() if block.n_filled}


def forged(pane: Pane, other: Pane, rng: np.random.Generator) -> bytes:
    """A packed pane with one to three accumulators changed, left out or taken from another pane."""
    parts = pane.parts()
    for name in rng.choice(sorted(parts.keys() & accumulators().keys()), rng.integers(1, 4)):
        drawn = rng.random()
        if drawn < 0.05:
            parts.pop(name, None)
        elif drawn < 0.15 and name in other.parts():
            parts[name] = other.parts()[name]
        elif name in parts:
            part = accumulators()[name].unpack(pane.spec, parts[name])
            change_part(part, rng)
            parts[name] = part.pack()
    return Pane.from_parts(pane.spec, parts).pack()


def results(pane: Pane, rng: np.random.Generator) -> Iterator[Any]:
    """What queries and the alarm compute of a pane, under one label policy; what is declared not answerable is left out."""
    raters = POLICIES[rng.integers(len(POLICIES))]
    view = View(pane, PaneQuery(bins=default_bins(pane.spec), raters=raters))
    method = sorted(MAPS)[rng.integers(len(MAPS))]
    objective = ("nll", "brier", "ece")[rng.integers(3)]
    asked: list[Callable[[], Any]] = [
        *(lambda slug=slug: compute_metrics(view, [slug]) for slug in METRICS),
        lambda: reliability(view),
        lambda: fit_temperature(pane, objective=objective, raters=raters),
        lambda: fit(method, view, Options(bins=view.pane_query.bins)),
        lambda: sealed(pane, raters),
    ]
    for ask in asked:
        try:
            with np.errstate(all="ignore"):
                yield ask()
        except (CalibrationInputError, NoResultError):
            continue


def sealed(pane: Pane, raters: str) -> Any:
    """What a worker makes of a sealed cohort."""
    table = unit_table(pane, raters)
    assert np.isfinite(table.columns).all() and (table.correct <= table.weight).all()
    found, judged = evaluate(effects_of([table] * 12), 1.0 / 3650.0), judge(table)
    return [
        found.p,
        judged.limit,
        judged.error,
        temperature_of(table),
        bin_rows(table),
    ]


def not_finite(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(not_finite, value.values()))
    if isinstance(value, list | tuple):
        return any(map(not_finite, value))
    return isinstance(value, np.generic) or (isinstance(value, float) and not math.isfinite(value))


@pytest.mark.parametrize("name", ["three", "binary", "odd"])
def test_forged_panes_are_rejected_or_give_finite_numbers(name: str) -> None:
    spec, rng = SPECS[name], np.random.default_rng(12)
    shapes = (
        {"seed": 1},
        {"seed": 2, "units": "cases", "most_raters": 1},
        {"seed": 3, "units": None, "n": 4},
    )
    panes = [pane_of(spec, *batches_of(spec, SHAPE | shape, 2)) for shape in shapes]
    accepted = rejected = 0
    while accepted < PANES:
        first, second = (panes[rng.integers(len(panes))] for _ in range(2))
        try:
            pane = Pane.unpack(forged(first, second, rng))
            check_pane(pane, spec)
        except (PackingError, CalibrationInputError):
            rejected += 1
            continue
        accepted += 1
        merged = Pane(spec).merge_all([pane, second])
        for found in results(merged if accepted % 2 else pane, rng):
            assert not not_finite(found), found
    assert rejected > PANES / 2


def packed_zeros(n: int, about: dict[str, Any]) -> bytes:
    """Some hundred bytes that say, truly, that they hold n bytes."""
    return pack({"x": np.zeros(n, np.uint8)}, about, level=1)


def test_content_that_no_pane_has_is_rejected_before_it_is_decompressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = SPECS["three"]
    data = {"": packed_zeros(1 << 20, {"pane": 1, "spec": spec.to_dict(), "parts": {}})}
    for name in Pane(spec).names:
        about = {
            "accumulator": name,
            "format": accumulators()[name].format,
            "spec": spec.digest,
            "keys": [],
            "names": [],
        }
        data[name] = packed_zeros(1 << {"cases": 26, "sample": 24}.get(name, 23), about)
    monkeypatch.setattr(
        "calibrant.core.frames.decompressed", lambda frame, largest: pytest.fail("decompressed")
    )
    for name, packed in data.items():
        with pytest.raises(PackingError, match="larger than it can be"):
            accumulators()[name].unpack(spec, packed) if name else Pane.unpack(packed)
