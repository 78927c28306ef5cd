"""`memory_bytes` of panes and accumulators against what the allocator reports: within 5 % and 2 kB an accumulator."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from calibrant import Pane, PaneSpec
from calibrant.accumulators import accumulators
from calibrant.array_memory import held_bytes
from tests.ground.panes import SHAPE, SPECS, a_histogram, batches_of

some_specs = pytest.mark.parametrize("name_of_spec", ["binary", "ten", "listed"])
SHARE, SLACK_BYTES = 0.05, 2048


def allocated(make: Callable[[], Any]) -> tuple[Any, int]:
    """What `make` returns, and the bytes that stay allocated for it once what only a first call makes is there."""
    make()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        made = make()
        return made, tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


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
    for name, data in filled(spec, 200, units).parts().items():
        kind = accumulators()[name]
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
    assert pane.memory_bytes > 5_000_000 > 10 * packed


def test_a_view_counts_its_base() -> None:
    base = np.zeros(100_000)
    assert held_bytes([base[:1]]) > 800_000
    assert held_bytes([np.frombuffer(bytes(5000), np.uint8)[:10]]) > 5000
    assert held_bytes([base, base[:1], base[1:]]) < 801_000
