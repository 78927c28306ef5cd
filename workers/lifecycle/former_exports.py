"""Readers of what exports of the version before have in other forms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.packing import PackingError, unpack
from calibrant.core.sampled_rows import fits, unpacked_columns
from calibrant_server.workers.segments.row_columns import NameTable, fixed_of, ratings_table
from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.segments.scores import Scores

_ROWS = 1


def former_sample(data: bytes, task: str) -> Rows:
    """Return the rows of a sample of format 1.

    Raises
    ------
    PackingError
        Damaged bytes, or bytes of another format.
    """
    arrays, about = unpack(data)
    if about.get("sample_rows") != _ROWS:
        raise PackingError(f"Received sampled rows of format {about.get('sample_rows')}.")
    try:
        return _rows(arrays, int(about["from"]), [str(key) for key in about["slices"]], task)
    except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
        raise PackingError(f"not sampled rows: {error!r}") from error


def former_report(line: dict[str, Any]) -> dict[str, Any]:
    """Return the line of an archived report; the version before stored panes with it, and no results."""
    holds = line["holds"]
    if "panes" not in line or not isinstance(holds, dict):
        return line
    described = {name: value for name, value in holds.items() if name != "panes"}
    members = {name: value for name, value in line.items() if name != "panes"}
    return members | {"holds": {**described, "results_sha256": None}, "results": None}


def _rows(arrays: dict[str, NDArray[Any]], from_s: int, keys: list[str], task: str) -> Rows:
    given, table = unpacked_columns(arrays), NameTable()
    n, fixed = len(given), fixed_of(len(given))
    if not fits(given, given.scores.shape[1]):
        raise PackingError("Received sampled rows with invalid columns.")
    fixed["hash"], fixed["unit_hash"], fixed["weight"] = given.ids, given.units, given.weights
    fixed["is_logits"], fixed["count"] = given.logits, given.counts
    fixed["start_s"] = arrays["starts"] + from_s
    fixed["n_ratings"] = np.bincount(given.ratings.row, minlength=n)
    slices = np.full((n, len(keys)), -1, np.int32)
    for k in range(len(keys)):
        names = arrays[f"slice{k}_names"].tobytes().decode().split("\n")[:-1]
        slices[:, k] = np.array([*table.codes(names), -1])[arrays[f"slice{k}"]]
    ratings = ratings_table(given.ratings.class_index, given.ratings.count)
    scores = Scores(given.logits == 1, given.scores)
    return Rows(task, fixed, scores, ratings, tuple(keys), slices, table.names)
