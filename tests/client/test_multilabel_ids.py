"""Ids of the events of a row: no two rows share one, whatever slashes their names have."""

from __future__ import annotations

from typing import Any, cast

from calibrant.client.multilabel import MultilabelModel


def test_slashes_in_names_do_not_let_two_rows_share_an_id() -> None:
    names = ["car", "b/c", "c", "b%2Fc"]
    model = MultilabelModel(cast("Any", None), names)
    found = model._ids(["a", "a/b", "img/1.png"], names)
    assert len(set(found)) == 12
    assert found[:2] == ["a/car", "a/b%2Fc"] and found[-4] == "img/1.png/car"
