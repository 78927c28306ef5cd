"""Own edges of bins: as they are given, from rows, and from a grid that has each of them.

An edge that is computed, such as 3 * 0.1, can differ in its last place from the quotient k / n that edges of equal bins are. It is then
read as that quotient, so that `linspace(0, 1, 11)` gives the same bins as 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from calibrant.core.arrays import Floats, Ints
from calibrant.core.edge_rules import Rules, on_given_edges
from calibrant.core.errors import CalibrationInputError
from calibrant.core.grid import Edges, Grid

# The name of this binning in results.
OWN = "own_edges"
MAX_EDGES = 1001
_LARGEST_DENOMINATOR = 100_000
_ROUNDING = 4.0
_EXPECTED = f"expected 2 to {MAX_EDGES} increasing numbers from 0 to 1"


def are_edges(bins: Any) -> bool:
    """Return whether an argument lists edges and is no number of bins."""
    is_list = isinstance(bins, Sequence) and not isinstance(bins, str | bytes)
    return is_list or getattr(bins, "ndim", 0) > 0


def read_edges(given: Any, pointer: str = "/bins") -> tuple[float, ...]:
    """Return edges as they are used.

    Parameters
    ----------
    given : numbers, or text of numbers separated by commas
    pointer : of the argument, for errors

    Raises
    ------
    CalibrationInputError
        No increasing numbers, or not from 0 to 1.

    Examples
    --------
    >>> read_edges("0, 0.5, 0.9, 1"), read_edges(np.linspace(0, 1, 11))[3]
    ((0.0, 0.5, 0.9, 1.0), 0.3)
    """
    values = given.split(",") if isinstance(given, str) else given
    try:
        edges = np.array([_number(each) for each in values], np.float64)
    except (TypeError, ValueError) as error:
        raise _rejected(pointer, "type", given) from error
    if not 2 <= len(edges) <= MAX_EDGES:
        raise _rejected(pointer, "range", f"{len(edges)} edges")
    if not (np.diff(edges) > 0).all():
        raise _rejected(pointer, "order", given)
    if edges[0] != 0.0 or edges[-1] != 1.0:
        ends = f"edges from {edges[0]:g} to {edges[-1]:g}"
        raise _rejected(pointer, "range", ends, "; every score must be in a bin, so add 0 and 1")
    return tuple(edges.tolist())


def _rejected(pointer: str, rule: str, came: Any, more: str = "") -> CalibrationInputError:
    detail = f"Received {str(came)[:60]}; {_EXPECTED}, such as 0,0.5,0.9,1{more}."
    return CalibrationInputError.at(pointer, rule, detail)


def _number(value: Any) -> float:
    """Return an edge; of a narrow type the decimal that it is written as."""
    is_narrow = isinstance(value, np.floating) and value.dtype.itemsize < 8
    number = float(str(value) if is_narrow else value)
    if isinstance(value, bool) or not np.isfinite(number):
        raise ValueError(f"{value!r} is no edge")
    quotient = float(Fraction(number).limit_denominator(_LARGEST_DENOMINATOR))
    return quotient if abs(quotient - number) <= _ROUNDING * np.spacing(abs(number)) else number


def bins_of_scores(
    score: Floats, edges: Sequence[float], closed: Edges, rules: Rules | None = None
) -> Ints:
    """Return the bin of raw scores.

    Parameters
    ----------
    score : float64 (n,), in [0, 1]
    edges : as `read_edges` returns them
    closed : the end that belongs to a bin: "right" for (a, b] with 0 in the first, "left" for [a, b) with 1 in the last
    rules : as in `Grid.locate`

    Examples
    --------
    >>> bins_of_scores(np.array([0.0, 0.5, 0.7, 1.0]), (0.0, 0.5, 1.0), "right").tolist()
    [0, 0, 1, 1]
    >>> bins_of_scores(np.array([0.0, 0.5, 0.7, 1.0]), (0.0, 0.5, 1.0), "left").tolist()
    [0, 1, 1, 1]
    """
    at = np.asarray(edges, np.float64)
    return _between(at, on_given_edges(score, at, rules), closed)


def bins_of_positions(grid: Grid, edges: Sequence[float], closed: Edges) -> Ints:
    """Return the bin of every position of a grid that has all edges; int64 (n_positions,)."""
    place = np.rint(np.asarray(edges) * grid.cells).astype(np.int64)
    middle = grid.main_places / 2.0
    return _between(place.astype(np.float64), middle, closed)


def _between(edges: Floats, score: Floats, closed: Edges) -> Ints:
    if closed == "right":
        found = np.searchsorted(edges, score, "left")
    else:
        found = np.searchsorted(edges, score, "right")
    return np.asarray(np.clip(found - 1, 0, len(edges) - 2), np.int64)


def missing_edges(grid: Grid, edges: Sequence[float]) -> list[float]:
    """Return the edges that a grid does not have."""
    return [each for each in edges if round(each * grid.cells) / grid.cells != each]


def inexact_edges(edges: Sequence[float], scope: str, grid: Grid) -> str:
    """Return the sentence with the edges that a scope's grid does not have, and the nearest that it has."""
    missing = missing_edges(grid, edges)
    listed = ", ".join(f"{each:.10g}" for each in missing[:8])
    nearest = ", ".join(f"{round(each * grid.cells) / grid.cells:.10g}" for each in missing[:8])
    return (
        f"Received edges {listed}, which are no multiples of 1/{grid.cells}, the edges that are stored of {scope}; "
        f"the nearest are {nearest}. Use these, or score the rows themselves, which give any bins (POST /v1/score)"
    )
