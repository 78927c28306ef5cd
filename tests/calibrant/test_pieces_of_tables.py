"""Tables in pieces, and panes of combinations of slice values: what bulk jobs make of a table."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.core.panes_by_key import Key, PanesByKey, SplitUnitsWarning, fill_by
from tests.calibrant.test_fill_by import OPTIONS, SPEC, same_parts, table


def test_pieces_merge_without_a_change_of_theirs() -> None:
    columns = table()
    hours = np.array([text[11:13] for text in columns["ts"]])
    pieces = []
    for hour in np.unique(hours):
        rows = np.flatnonzero(hours == hour)
        piece = {name: [column[i] for i in rows] for name, column in columns.items()}
        pieces.append(fill_by(piece, SPEC, slices=["site"], unit="patient"))
    digests = [{key: pane.digest() for key, pane in piece.items()} for piece in pieces]
    total = PanesByKey()
    for piece in pieces:
        assert total.merge(piece) is total
    expected = fill_by(columns, SPEC, slices=["site"], unit="patient")
    assert {key: pane.digest() for key, pane in total.items()} == {
        key: pane.digest() for key, pane in expected.items()
    }
    assert [{key: pane.digest() for key, pane in piece.items()} for piece in pieces] == digests


def test_units_split_add_up() -> None:
    columns = table()
    columns["patient"] = ["p1", "p2", *columns["patient"][2:]]
    columns["ts"] = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", *columns["ts"][2:]]
    with pytest.warns(SplitUnitsWarning):
        panes = fill_by(columns, SPEC, **OPTIONS)
    assert PanesByKey().merge(panes).merge(panes).n_units_split == 4


def test_combinations_of_slices_are_panes_of_their_rows() -> None:
    columns = table()
    columns["ward"] = ["xyz"[i % 3] for i in range(300)]
    options = {**OPTIONS, "slices": ["ward", "site"]}
    found = fill_by(columns, SPEC, combine_slices=True, **options)
    assert len(found) == 18 and len({key.slice for key in found}) == 6
    for key, pane in found.items():
        site, ward = (each.split(":")[1] for each in key.slice.split(","))
        assert key.slice == f"site:{site},ward:{ward}"
        rows = [i for i in range(300) if (columns["site"][i], columns["ward"][i]) == (site, ward)]
        some = {name: [column[i] for i in rows] for name, column in columns.items()}
        same_parts(pane, fill_by(some, SPEC, **{**OPTIONS, "slices": []})[Key(key.start, "")])
    plain = {**OPTIONS, "slices": []}
    assert fill_by(columns, SPEC, combine_slices=True, **plain) == fill_by(columns, SPEC, **plain)
