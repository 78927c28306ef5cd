"""`memory_bytes` of panes and accumulators against what the allocator reports: within 5 % and 2 kB an accumulator."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from calibrant import Pane, PaneSpec
from calibrant.accumulators import accumulators
from calibrant.core.arrays import stored_bytes
from tests.calibrant.data import shapes
from tests.calibrant.panes import FEW, SHAPE, SPECS, a_histogram, batches_of, every_spec, pane_of

some_specs = pytest.mark.parametrize("name_of_spec", ["binary", "ten", "listed"])
SHARE, SLACK_BYTES = 0.05, 2048


def allocated(make: Callable[[], Any]) -> tuple[Any, int]:
    """What `make` returns, and the bytes that stay allocated for it once what only a first call makes is there."""
    # Python keeps freed dicts, lists, tuples and floats and hands them out untraced. A full collection drops those of
    # earlier tests; the first result lives until the end, so that only its temporaries are kept.
    gc.freeze()  # a collection looks at what is made from here on
    gc.collect()
    first = make()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        made = make()
        return made, tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.unfreeze()
        del first


def filled(spec: PaneSpec, n: int, units: str) -> Pane:
    (batch,) = batches_of(spec, SHAPE | {"n": n, "units": units}, 1)
    pane = Pane(spec)
    pane.fill_batch(batch)
    pane.fill_histogram(a_histogram(spec))
    return pane


@some_specs
@pytest.mark.parametrize("units", ["units", "cases"])
def test_every_accumulator_counts_the_memory_it_holds(name_of_spec: str, units: str) -> None:
    spec = SPECS[name_of_spec]
    parts = filled(spec, 200, units).parts()
    for name, kind in accumulators().items():
        if name not in parts:
            continue
        data = parts[name]
        part, real = allocated(lambda kind=kind, data=data: kind.unpack(spec, data))  # type: ignore[misc]
        assert abs(part.memory_bytes - real) <= SHARE * real + SLACK_BYTES, name


@some_specs
@pytest.mark.parametrize("n", [1, 200])
def test_a_pane_counts_the_memory_it_holds(name_of_spec: str, n: int) -> None:
    spec = SPECS[name_of_spec]
    parts = filled(spec, n, "cases").parts()
    slack = SLACK_BYTES * len(parts)

    def read() -> Pane:
        return Pane.from_parts(spec, parts)

    def doubled() -> Pane:
        return read().merge(Pane.from_parts(spec, parts))

    for make in (read, doubled, lambda: filled(spec, n, "cases")):
        pane, real = allocated(make)
        assert abs(pane.memory_bytes - real) <= SHARE * real + slack


def test_a_dense_pane_counts_its_empty_cells() -> None:
    pane = filled(SPECS["ten"], 3000, "units")
    packed = sum(map(len, pane.parts().values()))
    for name in pane.names:
        for block in pane[name].blocks.values():
            assert block.counts.size == block.n_counts * block.size  # dense from here on
    assert pane.memory_bytes > 5_000_000 > 10 * packed


def assert_packed_alike(one: Pane, other: Pane) -> None:
    assert one.parts() == other.parts()


@every_spec
@FEW
@given(options=shapes())
def test_a_cell_without_a_count_has_no_sums(spec: PaneSpec, options: dict[str, Any]) -> None:
    """What `tighten` drops is nothing, in every accumulator."""
    (batch,) = batches_of(spec, options, 1)
    pane = pane_of(spec, batch)
    for name in pane.names:
        for block in pane[name].blocks.values():
            gone = block.counts[0] == 0
            assert not block.sums[:, gone].any(), name
            assert not block.counts[:, gone].any(), name


@every_spec
@FEW
@given(options=shapes())
def test_tight_panes_add_to_the_same_bytes(spec: PaneSpec, options: dict[str, Any]) -> None:
    batches = batches_of(spec, options, 4)
    dense, tight = pane_of(spec, batches[0]), pane_of(spec, batches[0]).tighten()
    for batch in batches[1:]:
        dense.merge(pane_of(spec, batch))
        tight.merge(pane_of(spec, batch).tighten()).tighten()
        assert_packed_alike(tight, dense)
    for each in (tight, dense):
        each.merge(pane_of(spec, batches[2])).subtract(pane_of(spec, batches[2]))
        each.subtract(pane_of(spec, batches[1]).tighten())
        each.tighten() if each is tight else None
    assert_packed_alike(tight, dense)
    for each in (tight, dense):
        each.fill_batch(batches[1])
    assert_packed_alike(tight, dense)


def test_a_tight_pane_stays_small_until_it_has_many_cells() -> None:
    spec = SPECS["ten"]
    pane = Pane(spec)
    for number in range(5):
        (batch,) = batches_of(spec, SHAPE | {"seed": number, "n": 1, "units": "units"}, 1)
        pane.merge(pane_of(spec, batch).tighten()).tighten()
        assert pane.memory_bytes < 400_000
    (many,) = batches_of(spec, SHAPE | {"n": 5000, "units": "units"}, 1)
    pane.merge(pane_of(spec, many))
    assert pane.tighten().memory_bytes > 4_000_000
    assert Pane(spec).tighten().merge(pane_of(spec, batch)).tighten().memory_bytes < 200_000


def test_an_emptied_table_of_histograms_keeps_its_sums() -> None:
    """A running total is replaced by adding the new and taking away the old, whatever is tightened between."""
    spec = SPECS["three"]
    histogram, pane = a_histogram(spec), Pane(spec)
    expected = Pane(spec)
    expected.fill_histogram(histogram)
    pane.fill_histogram(histogram.negated())
    pane.tighten()
    pane.fill_histogram(histogram)
    pane.fill_histogram(histogram)
    assert_packed_alike(pane.tighten(), expected)


def test_a_view_counts_its_base() -> None:
    base = np.zeros(100_000)
    assert stored_bytes([base[:1]]) > 800_000
    assert stored_bytes([np.frombuffer(bytes(5000), np.uint8)[:10]]) > 5000
    assert stored_bytes([base, base[:1], base[1:]]) < 801_000
