"""Arrow IPC streams as columns: the same columns as in JSON, read without a Python object for each number.

pyarrow decodes and validates them, once `service/http/arrow_sizes.py` has bounded their sizes; then the buffers are read by
`calibrant.input.arrow`. nanoarrow, with a fiftieth of its size, ends the process on some forged streams
(`docs/assurance.md` has the figures).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant.core.documents import Columns
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.input.arrow import read_table
from calibrant.input.arrow_column import Column
from calibrant_server.service.http.problems import BodyTooLarge, MalformedBody

SLICES = "slices"
BATCH_ID = b"batch_id"


def read_arrow(data: bytes, max_text_bytes: int) -> tuple[Columns, str | None]:
    """Return the columns of a stream by name, slices by key, and the batch id of its schema's metadata.

    Raises
    ------
    MalformedBody
        The stream is damaged.
    CalibrationInputError
        A column is repeated, or is of a type that no column has.
    BodyTooLarge
        The texts that dictionaries repeat take more than `max_text_bytes`.
    """
    try:
        return _columns(_decoded(data), max_text_bytes)
    except UnicodeDecodeError as error:
        raise _damaged(str(error)) from error


def _columns(table: Any, max_text_bytes: int) -> tuple[Columns, str | None]:
    slices = [i for i, name in enumerate(table.column_names) if name == SLICES]
    columns: Columns = dict(read_table(_without(table, slices)))
    if slices:
        columns[SLICES] = _by_key(table.column(slices[0]))
    _bound_texts(columns, max_text_bytes)
    batch_id = (table.schema.metadata or {}).get(BATCH_ID)
    return columns, None if batch_id is None else batch_id.decode(errors="replace")


def _decoded(data: bytes) -> Any:
    """Return a valid table of distinct column names."""
    import pyarrow as pa

    try:
        table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
        table.validate(full=True)
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _damaged(str(error)) from error
    repeated = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if repeated:
        detail = f"Received column {repeated[0][:60]!r} twice; expected it once."
        raise CalibrationInputError.at(f"/{repeated[0][:60]}", "repeated_key", detail)
    return table


def _damaged(reason: str) -> MalformedBody:
    detail = f"Received a damaged Arrow IPC stream ({reason[:200]}). Write it again."
    return MalformedBody(detail, errors=[Violation("", "arrow", detail)])


def _without(table: Any, places: list[int]) -> Any:
    for place in places:
        table = table.remove_column(place)
    return table


def _by_key(column: Any) -> dict[str, Column]:
    """Return the slices of a column of structs, which has one field for each key."""
    import pyarrow as pa

    if not pa.types.is_struct(column.type):
        detail = "Received another Arrow type for slices; expected a struct with a field of texts for each key."
        raise CalibrationInputError.at(f"/{SLICES}", "object", detail)
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        detail = "Received a row without slices; expected values, as other rows have."
        raise CalibrationInputError.at(f"/{SLICES}/{row}", "slices", detail)
    keys = [field.name for field in column.type]
    return dict(read_table(pa.Table.from_arrays(column.flatten(), names=keys)))


def _bound_texts(columns: Columns, max_text_bytes: int) -> None:
    """Reject texts that a dictionary repeats so often that they would fill memory once they are joined."""
    every = [*columns.values(), *columns.get(SLICES, {}).values()]
    texts = [each.values for each in every if isinstance(each, Column)]
    total = sum(
        sum(len(text) for text in values if text is not None)
        for values in texts
        if isinstance(values, np.ndarray) and values.dtype.kind == "O"
    )
    if total > max_text_bytes:
        raise BodyTooLarge(
            f"Received {total} bytes of texts, repetitions counted; expected at most {max_text_bytes}. Send several batches."
        )
