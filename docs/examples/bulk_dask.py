"""Reduce Parquet files to panes with Dask, on one machine or a cluster (`dask.distributed.Client`).

panes = reduce(sorted(glob("predictions/*.parquet")), cal.PaneSpec("multiclass", 10), unit="patient", time="event_time")
"""

from functools import reduce as fold
from typing import Any
from zlib import crc32

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import calibrant as cal
from calibrant.core.panes_by_key import PanesByKey


def reduce(
    paths: list[str], spec: cal.PaneSpec, *, unit: str, pieces: int = 16, **columns: Any
) -> PanesByKey:
    """Return the panes of all rows; `columns` are those of `cal.fill_by`. A piece must fit in a worker's memory."""

    def split(path: str) -> list[pa.Table]:
        """Divide a file's rows by unit."""
        table = pq.read_table(path)
        units = table[unit].combine_chunks().dictionary_encode()
        of_unit = [crc32(str(each).encode()) % pieces for each in units.dictionary.to_pylist()]
        piece = np.array(of_unit, np.int64)[units.indices.to_numpy()]
        return [table.filter(pa.array(piece == number)) for number in range(pieces)]

    def fill(tables: list[pa.Table]) -> PanesByKey:
        return cal.fill_by(pa.concat_tables(tables), spec, unit=unit, **columns)

    split_files = [dask.delayed(split, nout=pieces)(path) for path in paths]
    panes = [dask.delayed(fill)([file[n] for file in split_files]) for n in range(pieces)]
    while len(panes) > 1:
        panes = [
            dask.delayed(fold)(PanesByKey.merge, panes[i : i + 4], PanesByKey())
            for i in range(0, len(panes), 4)
        ]
    return panes[0].compute()
