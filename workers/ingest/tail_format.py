"""Packed rows of a tail (format 2), exactly as they were filled.

A column with one value for all rows is stored once. Scores that are float32, or float32 divided by the sum of their row
(`float32.py`), take four bytes each. Hashes of predictions without id are computed again from the row. Units take the
eight bytes of their hash; their names are not needed to fill.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import TASKS, Batch, Ratings
from calibrant.core.documents import Columns, Header
from calibrant.core.edge_rules import EXACT, N_RULES
from calibrant.core.float32 import Narrowed, pack_scores, unpack_scores
from calibrant.core.packing import PackingError, pack, unpack

if TYPE_CHECKING:
    from calibrant_server.workers.ingest.tail_rows import TailRows

FORMAT = 2
# Rows of format 1 were filled when only a score equal to an edge was on it.
_FIRST_FORMAT = 1
_INVALID = "Received rows with invalid columns."
# Columns with one value for all rows are written as that value: name, type of an array in memory.
PLAIN: dict[str, type] = {
    "logits": np.bool_,
    "sign": np.int64,
    "part": np.int64,
    "weights": np.float64,
    "source": np.int64,
    "named": np.bool_,
    "delays": np.int64,
    "edge_rules": np.uint8,
}


def pack_rows(rows: TailRows) -> bytes:
    """Return rows as bytes."""
    about: Header = {"rows": FORMAT, "task": rows.task, "n": len(rows)}
    ratings = rows.ratings
    arrays: dict[str, NDArray[Any]] = pack_scores(rows.scores, rows.narrow)
    arrays |= {"vote_class": ratings.class_index, "vote_count": ratings.count}
    arrays["n_votes"] = np.bincount(ratings.row, minlength=len(rows))
    same: Columns = {}
    for name in PLAIN:
        column = getattr(rows, name)
        if len(column) and (column == column[0]).all():
            same[name] = column[0].item()
        else:
            arrays[name] = column.astype(np.uint8) if column.dtype == np.bool_ else column
    about["same"] = same
    if rows.named.any():
        arrays["hashes"] = rows.hashes[rows.named]
    if (rows.source >= 2).any():
        arrays["unit_hashes"] = rows.unit_hashes[rows.source >= 2]
    if has_names(rows.cases):
        pack_names(arrays, "case", rows.cases)
    about["slices"] = sorted(rows.slices)
    for number, key in enumerate(about["slices"]):
        pack_names(arrays, f"slice{number}", rows.slices[key])
    return pack(arrays, about)


def unpack_rows(data: bytes) -> tuple[Columns, Narrowed]:
    """Return the columns of packed rows, and how their scores narrow.

    Raises
    ------
    PackingError
        Damaged, or of another format.
    """
    arrays, about = unpack(data)
    if about.get("rows") not in (_FIRST_FORMAT, FORMAT):
        raise PackingError(
            f"Received rows of format {about.get('rows')}; this version reads up to {FORMAT}."
        )
    try:
        return _columns(arrays, as_present(about))
    except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
        raise PackingError(f"not packed rows: {error!r}") from error


def as_present(about: Header) -> Header:
    """Return the header of rows with what their format left out."""
    if about.get("rows") != _FIRST_FORMAT:
        return about
    return {**about, "rows": FORMAT, "same": {**about["same"], "edge_rules": EXACT}}


def _columns(arrays: dict[str, NDArray[Any]], about: Header) -> tuple[Columns, Narrowed]:
    n, task = int(about["n"]), about["task"]
    columns: Columns = {"task": task}
    for name, kind in PLAIN.items():
        given = about["same"].get(name)
        columns[name] = np.full(n, given, kind) if given is not None else arrays[name].astype(kind)
    scores, narrow = unpack_scores(arrays, n)
    n_votes = arrays["n_votes"]
    row = np.repeat(np.arange(n), n_votes)
    ratings = Ratings(row, arrays["vote_class"], arrays["vote_count"])
    columns |= {"scores": scores, "ratings": ratings}
    batch = Batch(task, scores, False, ratings)
    named, grouped = columns["named"], columns["source"] >= 2
    hashes = np.zeros(n, np.uint64) if named.all() else batch.prediction_hash.copy()
    if named.any():
        hashes[named] = arrays["hashes"]
    unit_hashes = hashes.copy()
    if grouped.any():
        unit_hashes[grouped] = arrays["unit_hashes"]
    columns |= {"hashes": hashes, "unit_hashes": unit_hashes}
    columns["cases"] = unpack_names(arrays, "case", n)
    keys = [str(key) for key in about["slices"]]
    columns["slices"] = {
        key: unpack_names(arrays, f"slice{number}", n) for number, key in enumerate(keys)
    }
    _check(columns, n, task)
    return columns, narrow


def _check(columns: Columns, n: int, task: str) -> None:
    """Raise PackingError unless every column has n valid values."""
    ratings = columns["ratings"]
    lengths = {len(columns[name]) for name in (*PLAIN, "hashes", "unit_hashes", "cases")}
    lengths |= {len(values) for values in columns["slices"].values()}
    if lengths != {n} or not (
        ratings.row.shape == ratings.class_index.shape == ratings.count.shape
    ):
        raise PackingError(_INVALID)
    check_columns(columns, task)


def check_columns(columns: Columns, task: str) -> None:
    """Raise PackingError unless every value is valid, in columns of the same length."""
    scores, ratings = columns["scores"], columns["ratings"]
    place = ratings.row * scores.shape[1] + ratings.class_index
    is_sound = (
        task in TASKS
        and bool(
            (
                (ratings.class_index >= 0)
                & (ratings.class_index < scores.shape[1])
                & (ratings.count > 0)
            ).all()
        )
        and bool((np.diff(place) > 0).all())
        and bool((np.abs(columns["sign"]) == 1).all())
        and bool(((columns["source"] >= 0) & (columns["source"] < 4)).all())
        and bool((columns["edge_rules"] < N_RULES).all())
        and bool(np.isfinite(columns["weights"]).all() and np.isfinite(scores).all())
    )
    if not is_sound:
        raise PackingError(_INVALID)


def has_names(values: NDArray[Any]) -> bool:
    """Whether any row has a name."""
    n_without: int = values.tolist().count(None)
    return n_without < len(values)


def pack_names(arrays: dict[str, NDArray[Any]], name: str, values: NDArray[Any]) -> None:
    """Add names, each once and followed by a newline, and the number of each row's name; -1 without one."""
    numbers: dict[Any, int] = {None: -1}
    codes = [numbers.setdefault(value, len(numbers) - 1) for value in values.tolist()]
    text = "".join(f"{value}\n" for value in numbers if value is not None)
    arrays[f"{name}_names"] = np.frombuffer(text.encode(), np.uint8)
    arrays[name] = np.array(codes, np.int64)


def unpack_names(arrays: dict[str, NDArray[Any]], name: str, n: int) -> NDArray[Any]:
    if name not in arrays:
        return np.full(n, None, dtype=object)
    names = arrays[f"{name}_names"].tobytes().decode().split("\n")[:-1]
    if arrays[name].min(initial=0) < -1:
        raise PackingError("Received a row with an invalid name.")
    values: NDArray[Any] = np.array([*names, None], dtype=object)
    return np.asarray(values[arrays[name]])
