"""Panes, batches and specs for tests of what is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from calibrant import Batch, Histogram, Pane, PaneSpec
from calibrant.accumulators import Accumulator
from calibrant.accumulators.sample import Sample
from calibrant.accumulators.unit_sample import UnitSample
from tests.calibrant.data import random_batch

SPECS = {
    "binary": PaneSpec("binary", 2),
    "two": PaneSpec("multiclass", 2),
    "three": PaneSpec("multiclass", 3),
    "ten": PaneSpec("segmentation", 10),
    "hundred": PaneSpec("multiclass", 100),
    "listed": PaneSpec("multiclass", 100, listed_classes=(3, 70)),
    "odd": PaneSpec("multiclass", 4, grid=7),
}
SHAPE = {
    "seed": 5, "n": 30, "logits": False, "weights": True, "units": "units", "most_raters": 3, "unlabelled": 0.2,
}  # fmt: skip
SOME = settings(max_examples=12, deadline=None)
FEW = settings(max_examples=5, deadline=None)
every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


def arrays_of(part: Accumulator) -> tuple[dict[str, Any], dict[str, Any]]:
    """Everything that an accumulator holds: counts that must be equal, sums that must be near."""
    if isinstance(part, UnitSample):
        return {"hashes": part.hashes, "batches": part.batches, "halvings": part.halvings}, {}
    if isinstance(part, Sample):
        return part.arrays() | {"halvings": part.halvings}, {}
    counts = {
        f"{name} {i}": block.filled()[i] for name, block in part.blocks.items() for i in (0, 1)
    }
    return counts, {name: block.filled()[2] for name, block in part.blocks.items()}


def assert_same(
    one: Pane, other: Pane, *, tolerance: float = 1e-9, largest: Pane | None = None
) -> None:
    """Compare two panes: counts exactly, sums relative to the largest of their column, in a pane that was subtracted from."""
    assert one.names == other.names
    assert None in (one.digest(), other.digest()) or one.digest() == other.digest()
    for name in one.names:
        (counts, sums), (counts2, sums2) = arrays_of(one[name]), arrays_of(other[name])
        assert counts.keys() == counts2.keys()
        for key, values in counts.items():
            np.testing.assert_array_equal(values, counts2[key], err_msg=f"{name} {key}")
        for key, values in sums.items():
            columns = sums2 if largest is None else arrays_of(largest[name])[1]
            scale = 1.0 + np.abs(columns[key]).max(axis=1, initial=0.0, keepdims=True)
            assert (np.abs(values - sums2[key]) <= tolerance * scale).all(), f"{name} {key}"


def pane_of(spec: PaneSpec, *batches: Batch) -> Pane:
    pane = Pane(spec)
    for batch in batches:
        pane.fill_batch(batch)
    return pane


def batches_of(spec: PaneSpec, options: dict[str, Any], how_many: int) -> list[Batch]:
    """Batches of one shape whose units are complete in each."""
    given = {key: value for key, value in options.items() if key not in ("seed", "n")}
    given["binary"] = spec.task == "binary" and not given["logits"]
    rng = np.random.default_rng(options["seed"])
    return [random_batch(rng, spec, options["n"], prefix=f"{j}.", **given) for j in range(how_many)]


def a_histogram(spec: PaneSpec, cells: int | None = None, **fields: Any) -> Histogram:
    bins = cells or spec.grid
    count = np.zeros(bins)
    count[bins // 2 :] = 2.0
    middle = (np.arange(bins) + 0.5) / bins
    given = {
        "kind": "top_label",
        "bins": bins,
        "count": count,
        "sum_confidence": count * middle,
        "sum_correct": count / 2,
    }
    return Histogram.from_fields(given | fields, spec)
