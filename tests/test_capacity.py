"""`docs/state.md`: its table is the derived one, and the sizes that it is derived from are those of real panes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import capacity
from benchmarks.capacity import Load, Need
from calibrant import Batch, Pane
from calibrant_server.workers.segments.rows import Rows

PAGE = (Path(__file__).parents[1] / "docs" / "state.md").read_text()


def rows(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    scores = rng.dirichlet(np.full(capacity.N_CLASSES, 0.3), n).astype(np.float32)
    return {"probabilities": scores, "labels": rng.integers(0, capacity.N_CLASSES, n)}


def test_the_table_of_the_page_is_the_derived_one():
    lines = list(capacity.table())
    assert "\n".join(lines) in PAGE
    assert "\n".join(capacity.cold_table()) in PAGE


def test_days_in_files_leave_the_store():
    fleet = Need(10_000, 20, 1e4)
    stored, filed = fleet.cold_bytes(1)
    assert stored < fleet.memory_bytes / 4 and filed > stored


@pytest.mark.parametrize("n", [1, 10, 100, 1000, 8000])
def test_panes_have_the_sizes_that_the_table_is_derived_from(n):
    given = rows(n)
    packed = len(Pane.fill(given["probabilities"], given["labels"], sample_bytes=0).pack())
    assert capacity.packed_bytes(n) == pytest.approx(packed, rel=0.15)


def test_a_row_of_a_tail_has_the_size_that_the_table_is_derived_from():
    batch = Batch.from_columns(rows(1000)).batch
    packed = len(Rows.of_batch(batch, 0).pack())
    assert packed / 1000 == pytest.approx(capacity.ROW_BYTES, rel=0.25)


def test_sizes_grow_with_rows_and_slices():
    sizes = [capacity.hour_bytes(n, 20) for n in (1, 10, 100, 1000, 10_000, 100_000)]
    assert sizes == sorted(sizes)
    assert capacity.state_bytes(1000, 20) > capacity.state_bytes(1000, 0)
    # Rows are stored as rows while they are smaller than their panes.
    assert capacity.is_rows(1000, 20) and not capacity.is_rows(1_000_000, 20)


def test_a_fleet_needs_as_much_as_its_models():
    one, hundred = Need(1, 20, 1e3), Need(100, 20, 1e5)
    alike = hundred.memory_bytes - hundred.id_bytes
    assert alike == pytest.approx(100 * (one.memory_bytes - one.id_bytes))
    assert Need(10_000, 20, 1e3).batches_s == pytest.approx(10_000 / 60)
    assert "store memory" in Need(10_000, 20, 1e3).first_limit
    assert "thread of a partition" in Need(1, 0, 1e6).first_limit


def test_the_prediction_has_the_names_that_the_fleet_measures():
    source = (Path(capacity.__file__).parent / "fleet.py").read_text()
    assert all(f'"{name}"' in source for name in Load(50, 2).predicted(20))
