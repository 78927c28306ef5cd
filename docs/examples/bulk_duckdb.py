"""Reduce a table to panes on one machine with DuckDB: anything that DuckDB reads, larger than memory.

rows = "select * from 'predictions/*.parquet'"
panes = reduce(duckdb.connect(), rows, cal.PaneSpec("multiclass", 10), unit="patient", time="event_time", every="1h")
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa

import calibrant as cal
from calibrant.core.panes_by_key import PanesByKey


def reduce(
    database: duckdb.DuckDBPyConnection, rows: str, spec: cal.PaneSpec, *,
    unit: str | None = None, pieces: int = 16, **columns: Any,
) -> PanesByKey:  # fmt: skip
    """Return the panes of a query's rows; `columns` are those of `cal.fill_by`. A piece must fit in memory."""
    panes = PanesByKey()
    found = _batches(database, rows) if unit is None else _by_unit(database, rows, unit, pieces)
    for piece in found:
        panes.merge(cal.fill_by(piece, spec, unit=unit, **columns))
    return panes


def _batches(database: duckdb.DuckDBPyConnection, rows: str) -> Iterator[pa.RecordBatch]:
    yield from database.sql(rows).to_arrow_reader(500_000)


def _by_unit(database: Any, rows: str, unit: str, pieces: int) -> Iterator[pa.Table]:
    """Write each unit's rows into one of the pieces, then read the pieces."""
    with TemporaryDirectory() as folder:
        piece = f'select *, hash("{unit}") % {pieces} as piece from ({rows})'
        database.execute(f"copy ({piece}) to '{folder}/rows' (format parquet, partition_by piece)")
        for path in sorted(Path(folder, "rows").iterdir()):
            yield database.sql(f"from read_parquet('{path}/*.parquet')").to_arrow_table()
