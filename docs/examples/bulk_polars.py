"""Reduce a table to panes on one machine with Polars: Parquet, Delta and Iceberg, larger than memory.

rows = pl.scan_parquet("predictions/*.parquet")  # or pl.scan_delta(...), pl.scan_iceberg(...)
panes = reduce(rows, cal.PaneSpec("multiclass", 10), unit="patient", time="event_time", every="1h")
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

import calibrant as cal
from calibrant.core.panes_by_key import PanesByKey


def reduce(
    rows: pl.LazyFrame,
    spec: cal.PaneSpec,
    *,
    unit: str | None = None,
    pieces: int = 16,
    **columns: Any,
) -> PanesByKey:
    """Return the panes of all rows; `columns` are those of `cal.fill_by`. A piece must fit in memory."""
    panes = PanesByKey()
    for piece in _batches(rows) if unit is None else _by_unit(rows, unit, pieces):
        panes.merge(cal.fill_by(piece, spec, unit=unit, **columns))
    return panes


def _batches(rows: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    return rows.collect_batches(chunk_size=500_000, maintain_order=False)


def _by_unit(rows: pl.LazyFrame, unit: str, pieces: int) -> Iterator[pl.DataFrame]:
    """Write each unit's rows into one of the pieces, then read the pieces."""
    with TemporaryDirectory() as folder:
        piece = (pl.col(unit).hash() % pieces).alias("piece")
        rows.with_columns(piece).sink_parquet(pl.PartitionBy(folder, key="piece"))
        for path in sorted(Path(folder).iterdir()):
            yield pl.read_parquet(path / "*.parquet")
