"""Columns and tables of libraries with an Arrow interface (pyarrow, polars, pandas, DuckDB) as numpy arrays.

Objects with `__arrow_c_stream__` or `__arrow_c_array__` are read without a Python object for each number. Objects whose
`dtype` is a numpy dtype, such as most columns of pandas, are read as numpy arrays and do not need the extra.

nanoarrow reads the C stream interface with 1.2 MB, where pyarrow would be 55 MB. It is the extra `arrow`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError
from calibrant.core.extras import pip_install
from calibrant.input.arrow_column import Bools, Column, Lists
from calibrant.input.narrow_types import of_tensor, widened

_NUMBERS = {
    "c": "i1", "C": "u1", "s": "i2", "S": "u2", "i": "i4", "I": "u4", "l": "i8", "L": "u8", "e": "f2", "f": "f4", "g": "f8",
}  # fmt: skip
_TIME_UNITS = {"s": "s", "m": "ms", "u": "us", "n": "ns"}
_WIDEST_VIEW = 12  # longer texts of a view are in a buffer of their own


def is_arrow(value: Any) -> bool:
    """Return whether an object has an Arrow C interface."""
    return hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")


def plain(name: str, value: Any) -> Any:
    """Return a numpy array for values of a numpy dtype, a `Column` for Arrow data, and any other value unchanged.

    Parameters
    ----------
    name : of the column, for errors
    value : a column of a table

    Raises
    ------
    CalibrationInputError
        A type that no column can have (`arrow_type`), or times without a time zone (`time_zone`).
    ImportError
        nanoarrow is not installed.
    """
    if isinstance(value, np.ndarray):
        return widened(value)
    if isinstance(value, list | Column):
        return value
    if hasattr(value, "detach"):
        return of_tensor(value)
    if hasattr(value, "__array__"):
        dtypes: Any = getattr(value, "dtypes", None)  # of a frame, one for each column
        types = list(dtypes) if hasattr(dtypes, "__iter__") else [getattr(value, "dtype", None)]
        if types and all(isinstance(each, np.dtype) for each in types):
            array = np.asarray(value)
            if array.dtype.kind == "M":
                raise _naive(name)
            return array.tolist() if array.dtype == object else plain(name, array)
    if not is_arrow(value):
        return _as_list_or_array(value)
    try:
        return read_column(name, value)
    except RuntimeError as error:
        # nanoarrow does not read the buffer that polars exports for a column of nulls alone, nor types that other readers lack.
        if not hasattr(value, "to_numpy") or "format" in str(error):
            raise _not_exported(name, error) from error
        return plain(name, value.to_numpy())


def _as_list_or_array(value: Any) -> Any:
    """Return a sequence as a list, and what else says that it is an array as one."""
    if isinstance(value, memoryview):
        value = np.asarray(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return list(value)
    return plain("", np.asarray(value)) if hasattr(value, "__array__") else value


def read_column(name: str, value: Any) -> Column:
    """Read an Arrow array or stream; a table of numbers is read as one column of rows."""
    schema, arrays = _stream(value, name)
    chunks = [_column(name, schema, array.view(), 0, array.length) for array in arrays]
    return _joined(chunks) if chunks else Column(np.zeros(0), np.zeros(0, np.bool_))


def read_table(value: Any) -> dict[str, Column]:
    """Read the columns of an Arrow table or stream, by name.

    Raises
    ------
    CalibrationInputError
        A single column (`table`), a type that no column can have (`arrow_type`), or times without a zone (`time_zone`).
    ImportError
        nanoarrow is not installed.
    """
    schema, arrays = _stream(value)
    if schema.format != "+s":
        detail = "Received a single Arrow column; expected a table."
        raise CalibrationInputError.at("", "table", detail)
    chunks = list(arrays)
    views = [chunk.view() for chunk in chunks]
    found: dict[str, Column] = {}
    for i in range(schema.n_children):
        child = schema.child(i)
        if child.name in found:
            detail = f"The table has two columns {child.name!r}."
            raise CalibrationInputError.at(f"/{child.name}", "table", detail)
        parts = [
            _column(child.name, child, view.child(i), view.offset, view.length) for view in views
        ]
        found[child.name] = _joined(parts) if parts else Column(np.zeros(0), np.zeros(0, np.bool_))
    return found


def _stream(value: Any, name: str = "") -> tuple[Any, Iterator[Any]]:
    """Return the schema and the chunks."""
    try:
        import nanoarrow
    except ModuleNotFoundError as error:
        raise ImportError(
            f"Arrow data need nanoarrow, which is not installed. Install the extra: {pip_install('arrow')}"
        ) from error
    try:
        if hasattr(value, "__arrow_c_stream__"):
            stream = nanoarrow.c_array_stream(value)
            return stream.get_schema(), iter(stream)
        array = nanoarrow.c_array(value)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise _not_exported(name, error) from error
    return array.schema, iter([array])


def _not_exported(name: str, error: Exception) -> CalibrationInputError:
    detail = f"Received a column that its library cannot export as Arrow ({str(error)[:120]}). Convert it, for example by .to_numpy()."
    return CalibrationInputError.at(f"/{name}", "arrow_type", detail)


def _column(name: str, schema: Any, view: Any, first: int, n: int) -> Column:
    """Read rows `first` to `first + n` of an array, counted from the array's own offset."""
    start = view.offset + first
    null = _nulls(view, start, n)
    form = schema.format
    if schema.dictionary is not None:
        codes = _numbers(view, form, start, n)
        words = _column(name, schema.dictionary, view.dictionary, 0, view.dictionary.length)
        if isinstance(words.values, Lists) or words.values.ndim != 1:
            raise _unknown(name, "a dictionary of lists")
        codes = np.where(null, 0, codes)
        if not len(words):
            return Column(np.zeros(n, np.int64), np.ones(n, np.bool_))
        return Column(words.values[codes], null | words.null[codes])
    if form in _NUMBERS:
        return Column(_numbers(view, form, start, n), null)
    if form == "n":
        return Column(np.zeros(n, np.int64), np.ones(n, np.bool_))
    if form == "b":
        return Column(_bits(view.buffer(1), start, n), null)
    if form in ("u", "U", "vu"):
        return Column(_texts(view, form, start, n, null), null)
    if form.startswith("ts"):
        return Column(_times(name, view, form, start, n), null)
    if form in ("+l", "+L"):
        return _lists(name, schema, view, start, n, null)
    if form.startswith("+w:"):
        return _fixed_lists(name, schema, view, start, n, null)
    if form == "+s":
        children = [
            _column(name, schema.child(i), view.child(i), start, n) for i in range(view.n_children)
        ]
        return _side_by_side(name, children, null)
    raise _unknown(name, f"the Arrow format {form!r}")


def _nulls(view: Any, start: int, n: int) -> Bools:
    if view.n_buffers == 0 or view.null_count == 0 or view.buffer(0).size_bytes == 0:
        return np.zeros(n, np.bool_)
    return ~_bits(view.buffer(0), start, n)


def _bits(buffer: Any, start: int, n: int) -> Bools:
    """Return bits `start` to `start + n` of a buffer, the least significant first."""
    octets = _raw(buffer, "u1")[start // 8 : -(-(start + n) // 8)]
    return np.unpackbits(octets, bitorder="little")[start % 8 : start % 8 + n].astype(np.bool_)


def _raw(buffer: Any, dtype: str) -> NDArray[Any]:
    """Return a view of a buffer. It does not keep the Arrow array alive: copy what outlives the array."""
    return np.frombuffer(buffer, dtype) if buffer.size_bytes else np.zeros(0, dtype)


def _numbers(view: Any, form: str, start: int, n: int) -> NDArray[Any]:
    return _raw(view.buffer(1), "<" + _NUMBERS[form])[start : start + n].copy()


def _times(name: str, view: Any, form: str, start: int, n: int) -> NDArray[Any]:
    """Return timestamps that have a time zone; Arrow stores them in UTC whatever the zone."""
    unit, _, zone = form[2:].partition(":")
    if not zone:
        raise _naive(name)
    return _raw(view.buffer(1), "<i8")[start : start + n].copy().view(f"<M8[{_TIME_UNITS[unit]}]")


def _texts(view: Any, form: str, start: int, n: int, null: Bools) -> NDArray[Any]:
    texts = np.empty(n, object)
    pieces = _viewed(view, start, null) if form == "vu" else _offset_texts(view, form, start, n)
    texts[:] = [piece.decode() for piece in pieces]
    texts[null] = None
    return texts


def _offset_texts(view: Any, form: str, start: int, n: int) -> list[bytes]:
    offsets = _raw(view.buffer(1), "<i4" if form == "u" else "<i8")[start : start + n + 1].tolist()
    if not n:
        return []
    data = _raw(view.buffer(2), "u1")[offsets[0] : offsets[-1]].tobytes()
    first = offsets[0]
    return [data[a - first : b - first] for a, b in pairwise(offsets)]


def _viewed(view: Any, start: int, null: Bools) -> list[bytes]:
    """Return texts of string views: a length, then the text, or its first bytes, its buffer and its offset."""
    views = _raw(view.buffer(1), "u1").reshape(-1, 16)[start : start + len(null)]
    lengths, words = views[:, :4].copy().view("<i4")[:, 0], views[:, 8:].copy().view("<i4")
    inline = views[:, 4:].tobytes()
    buffers = [_raw(view.buffer(i), "u1").tobytes() for i in range(2, view.n_buffers - 1)]
    pieces = []
    for i, length in enumerate(np.where(null, 0, lengths).tolist()):
        if length <= _WIDEST_VIEW:
            pieces.append(inline[12 * i : 12 * i + length])
        else:
            buffer, place = int(words[i, 0]), int(words[i, 1])
            pieces.append(buffers[buffer][place : place + length])
    return pieces


def _lists(name: str, schema: Any, view: Any, start: int, n: int, null: Bools) -> Column:
    offsets = _raw(view.buffer(1), "<i4" if schema.format == "+l" else "<i8")[start : start + n + 1]
    offsets = offsets.astype(np.int64) if n else np.zeros(1, np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    inner = _column(name, schema.child(0), view.child(0), first, last - first)
    lengths = np.where(null, 0, np.diff(offsets))
    if null.any():
        kept = np.repeat(~null, np.diff(offsets))
        inner = _selected(inner, kept)
    values, missing = _elements(name, inner)
    return Column(Lists(values, np.append(0, np.cumsum(lengths)), null, missing), null)


def _fixed_lists(name: str, schema: Any, view: Any, start: int, n: int, null: Bools) -> Column:
    width = int(schema.format[3:])
    inner = _column(name, schema.child(0), view.child(0), start * width, n * width)
    if null.any():
        inner = Column(inner.values, inner.null & ~np.repeat(null, width))
    values, missing = _elements(name, inner)
    cells = None if missing is None else missing.reshape(n, width)
    return Column(values.reshape(n, width), null, cells)


def _elements(name: str, inner: Column) -> tuple[NDArray[Any], Bools | None]:
    """Return the values of lists, and which of them are null."""
    if isinstance(inner.values, Lists) or inner.values.ndim != 1:
        raise _unknown(name, "a list of lists")
    return inner.values, inner.null if inner.null.any() else None


def _selected(column: Column, kept: Bools) -> Column:
    assert not isinstance(column.values, Lists)
    return column if kept.all() else Column(column.values[kept], column.null[kept])


def _side_by_side(name: str, children: Sequence[Column], null: Bools) -> Column:
    """Return the columns of a table as a matrix: of numbers, or of Python objects where not all are of one kind."""
    arrays = [child.values for child in children]
    flat = [
        a for a in arrays if not isinstance(a, Lists) and a.ndim == 1 and a.dtype.kind in "fiubO"
    ]
    if not arrays or len(flat) < len(arrays):
        raise _unknown(name, "a table whose columns are not all numbers or texts")
    kinds = {array.dtype.kind for array in flat}
    alike = kinds <= set("fiu") or len(kinds) == 1
    matrix = np.stack(flat if alike else [array.astype(object) for array in flat], axis=1)
    cells = np.stack([child.null for child in children], axis=1)
    return Column(matrix, null, cells if cells.any() else None)


def _joined(chunks: Sequence[Column]) -> Column:
    if len(chunks) == 1:
        return chunks[0]
    null = np.concatenate([chunk.null for chunk in chunks])
    lists = [chunk.values for chunk in chunks if isinstance(chunk.values, Lists)]
    if lists:
        starts = np.cumsum([0, *(len(each.values) for each in lists)])
        offsets = [each.offsets[:-1] + start for each, start in zip(lists, starts, strict=False)]
        values = np.concatenate([each.values for each in lists])
        missing = _masks([(each.missing, each.values) for each in lists])
        return Column(Lists(values, np.concatenate([*offsets, starts[-1:]]), null, missing), null)
    arrays = [np.asarray(chunk.values) for chunk in chunks]
    cells = _masks([(each.cells, array) for each, array in zip(chunks, arrays, strict=True)])
    return Column(np.concatenate(arrays), null, cells)


def _masks(parts: Sequence[tuple[Bools | None, NDArray[Any]]]) -> Bools | None:
    """Join the masks of the values of several chunks; None if no value of any is masked."""
    if all(mask is None for mask, _ in parts):
        return None
    masks = [np.zeros(values.shape, np.bool_) if mask is None else mask for mask, values in parts]
    return np.concatenate(masks)


def _naive(name: str) -> CalibrationInputError:
    detail = (
        "Received timestamps without a time zone; expected timestamps with one. Attach the zone that they are in, "
        "for example .dt.replace_time_zone('UTC') in polars or .dt.tz_localize('UTC') in pandas."
    )
    return CalibrationInputError.at(f"/{name}", "time_zone", detail)


def _unknown(name: str, what: str) -> CalibrationInputError:
    detail = (
        f"Received {what}; expected numbers, texts, timestamps, or lists of numbers or texts. Cast the column, "
        "for example decimals to float64."
    )
    return CalibrationInputError.at(f"/{name}", "arrow_type", detail)
