"""Positions and bins against comparison with every edge."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant.core.grid import Grid, class_cells, equal_width_bin, grid_of
from tests.calibrant.data import edge_scores
from tests.calibrant.reference import bin_of

CELLS = (2, 3, 7, 60, 1200, 3600, 16384)


def some_scores(cells: int) -> np.ndarray:
    rng = np.random.default_rng(cells)
    near = rng.random(500) ** 20
    edges = np.arange(min(cells, 300) + 1) / min(cells, 300)
    exact = np.concatenate(
        [edge_scores(cells), edges, grid_of(cells).lower[::17], near, 1 - near, rng.random(500)]
    )
    every = np.concatenate([exact, np.nextafter(exact, 0), np.nextafter(exact, 1)])
    return np.unique(every[(every >= 0) & (every <= 1)])


@pytest.mark.parametrize("cells", CELLS)
def test_a_score_lies_within_its_position_and_order_is_kept(cells: int) -> None:
    grid, score = grid_of(cells), some_scores(cells)
    place = grid.locate(score)
    assert ((place >= 0) & (place < grid.n_positions)).all()
    assert (grid.lower[place] <= score).all()
    assert (score <= grid.upper[place]).all()
    assert (np.diff(place) >= 0).all()


@pytest.mark.parametrize("cells", CELLS)
def test_edges_have_positions_of_their_own(cells: int) -> None:
    grid = grid_of(cells)
    edges = np.arange(cells + 1) / cells
    place = grid.locate(edges)
    assert (grid.lower[place] == edges).all()
    assert (grid.upper[place] == edges).all()
    for neighbour in (np.nextafter(edges[1:], 0), np.nextafter(edges[:-1], 1)):
        assert not np.isin(grid.locate(neighbour), place).any()
    assert grid.locate(np.array([-0.0])).tolist() == [0]


@pytest.mark.parametrize("cells", CELLS)
def test_positions_tile_the_unit_interval(cells: int) -> None:
    grid = Grid(cells)
    assert len(grid.lower) == len(grid.upper) == grid.n_positions
    assert (grid.upper[:-1] == grid.lower[1:]).all()
    assert (grid.lower[0], grid.upper[-1]) == (0.0, 1.0)


@pytest.mark.parametrize("edges", ["right", "left"])
@pytest.mark.parametrize("cells", [2, 7, 60, 1200, 3600])
def test_bins_are_those_of_the_definition(cells: int, edges: str) -> None:
    grid, score = grid_of(cells), some_scores(cells)
    for bins in [m for m in grid.exact_bins if m in (1, 2, 5, 7, 10, 15, 20, 60)]:
        naive = [bin_of(float(s), bins, edges) for s in score]
        assert equal_width_bin(score, bins, edges).tolist() == naive  # type: ignore[arg-type]
        assert grid.bins(bins, edges)[grid.locate(score)].tolist() == naive  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None)
@given(st.floats(0, 1), st.integers(1, 100), st.sampled_from(["right", "left"]))
def test_raw_bins_for_any_bin_count(score: float, bins: int, edges: str) -> None:
    assert equal_width_bin(np.array([score]), bins, edges)[0] == bin_of(score, bins, edges)  # type: ignore[arg-type]


def test_the_edge_that_a_person_types() -> None:
    for k in range(1, 10):
        score = np.array([float(f"0.{k}")])
        assert equal_width_bin(score, 10, "right")[0] == k - 1
        assert equal_width_bin(score, 10, "left")[0] == k
        assert grid_of(3600).bins(10, "left")[grid_of(3600).locate(score)][0] == k


def test_shapes_and_empties() -> None:
    grid = grid_of(60)
    assert grid.locate(np.zeros((3, 0))).shape == (3, 0)
    assert grid.locate(np.full((2, 3), 0.5)).shape == (2, 3)
    assert grid.locate(np.array([])).dtype == np.int64


def test_bins_that_the_grid_cannot_give() -> None:
    assert grid_of(3600).exact_bins[:6] == (1, 2, 3, 4, 5, 6)
    assert {5, 10, 12, 15, 16, 20, 24, 25, 30, 36, 40, 50, 60, 100} <= set(grid_of(3600).exact_bins)
    assert {5, 8, 10, 12, 15, 16, 20, 25, 30, 40, 50, 60, 75, 100} <= set(grid_of(1200).exact_bins)
    for bins in (0, -1, 7, 7200):
        with pytest.raises(ValueError, match="expected a union"):
            grid_of(3600).bins(bins)
    with pytest.raises(ValueError, match="at least 2"):
        Grid(1)


@pytest.mark.parametrize(
    ("cells", "expected"), [(3600, 1200), (1200, 1200), (60, 60), (16384, 1024), (1201, 1), (2, 2)]
)
def test_the_class_grid_divides_the_grid(cells: int, expected: int) -> None:
    assert class_cells(cells) == expected


def test_tables_of_a_grid_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        grid_of(60).bins(10)[0] = 5


@pytest.mark.parametrize(
    ("cells", "coarse"), [(1200, 60), (120, 60), (60, 60), (1200, 15), (3600, 120)]
)
def test_positions_on_a_coarser_grid_are_those_of_the_scores_themselves(
    cells: int, coarse: int
) -> None:
    fine, score = grid_of(cells), np.concatenate([some_scores(cells), some_scores(coarse)])
    rough = Grid(coarse, refinement=1)
    assert (fine.on(rough)[fine.locate(score)] == rough.locate(score)).all()


def test_a_grid_that_is_no_union_is_rejected() -> None:
    with pytest.raises(ValueError, match="expected unions"):
        Grid(100).on(Grid(60, refinement=1))
    with pytest.raises(ValueError, match="expected unions"):
        Grid(1200).on(Grid(60))
