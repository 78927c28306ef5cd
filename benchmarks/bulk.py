"""`make bench-bulk`: CPU time per row of the recipes of docs/adapters.md, above the fill of rows that are in memory already.

The table has ten classes as float32, one label, a unit per eight rows, and event times of a day. CPU time is that of the process
and of all processes that it started, such as Spark's; their start is measured apart, with a small job. Every result is compared
with that of the first engine.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import calibrant as cal
from calibrant.core.panes_by_key import PanesByKey, SplitUnitsWarning

ROOT = Path(__file__).parents[1]
SPEC = cal.PaneSpec("multiclass", 10)
ROWS_TOGETHER = 500_000
PIECE = 1_000_000
COLUMNS = {"time": "event_time", "every": "1h", "unit": "patient"}
START_US = 1_790_000_000_000_000
Reduced = dict[cal.Key, cal.Pane]


def rows(n: int, n_units: int, seed: int) -> pa.Table:
    """Simulate predictions of a day."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.standard_normal((n, SPEC.n_classes), dtype=np.float32)
    scores = np.exp(z)
    scores /= scores.sum(1, keepdims=True)
    labels = (scores.cumsum(1) < rng.random((n, 1), dtype=np.float32)).sum(1)
    return pa.table(
        {
            "probabilities": pa.FixedSizeListArray.from_arrays(
                pa.array(scores.ravel()), SPEC.n_classes
            ),
            "labels": pa.array(labels.clip(0, SPEC.n_classes - 1).astype(np.int8)),
            "patient": pa.array(rng.integers(0, n_units, n)),
            "event_time": pa.array(
                START_US + rng.integers(0, 86_400_000_000, n), pa.timestamp("us", "UTC")
            ),
        }
    )


def write(folder: Path, n: int) -> list[str]:
    """Write a table as files of some million rows; return their paths."""
    paths = []
    for number, first in enumerate(range(0, n, ROWS_TOGETHER)):
        path = folder / f"{number // 8:04d}.parquet"
        part = rows(min(ROWS_TOGETHER, n - first), max(n // 8, 1), number)
        if number % 8 == 0:
            writer = pq.ParquetWriter(path, part.schema)
            paths.append(str(path))
        writer.write_table(part, row_group_size=100_000)
        if number % 8 == 7 or first + ROWS_TOGETHER >= n:
            writer.close()
    return paths


def processor_s() -> float:
    """Return the CPU seconds of this process and of all that it started, with those that have ended."""
    tick = os.sysconf("SC_CLK_TCK")
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        stats[int(path.parent.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / tick)
    found, wanted = 0.0, {os.getpid()}
    while wanted:
        found += sum(stats[pid][1] for pid in wanted)
        wanted = {pid for pid, (parent, _) in stats.items() if parent in wanted}
    return found


def fill(n: int, with_units: bool) -> float:
    """Return the CPU seconds per row of `fill_by` for rows in memory."""
    table = rows(n, max(n // 8, 1), 0)
    columns = COLUMNS if with_units else COLUMNS | {"unit": None}
    cal.fill_by(table.slice(0, 1000), SPEC, **columns)
    before = processor_s()
    cal.fill_by(table, SPEC, **columns)
    return (processor_s() - before) / n


def recipe(name: str) -> Any:
    """Return a recipe's module, which is not part of any package."""
    return importlib.import_module(f"bulk_{name}")


def polars(paths: list[str], columns: dict[str, Any], pieces: int) -> PanesByKey:
    """Reduce with Polars."""
    import polars as pl

    rows = pl.scan_parquet(paths)
    found: PanesByKey = recipe("polars").reduce(rows, SPEC, pieces=pieces, **columns)
    return found


def duckdb(paths: list[str], columns: dict[str, Any], pieces: int) -> PanesByKey:
    """Reduce with DuckDB."""
    import duckdb as engine

    query = f"select * from read_parquet({paths})"
    with engine.connect() as database:
        found: PanesByKey = recipe("duckdb").reduce(database, query, SPEC, pieces=pieces, **columns)
    return found


def dask(paths: list[str], columns: dict[str, Any], pieces: int) -> PanesByKey:
    """Reduce with Dask's threads."""
    found: PanesByKey = recipe("dask").reduce(paths, SPEC, pieces=pieces, **columns)
    return found


def spark(paths: list[str], columns: dict[str, Any], pieces: int) -> Reduced:
    """Reduce with Spark on this machine."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONWARNINGS"] = "ignore"
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "2g")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    rows = session.read.parquet(*paths)
    found = recipe("spark").reduce(rows, SPEC, pieces=pieces, **columns)
    return {key: cal.Pane.from_bytes(pane) for key, pane in recipe("spark").pairs(found)}


ENGINES: dict[str, Callable[..., Reduced]] = {
    "polars": polars, "duckdb": duckdb, "dask": dask, "spark": spark,
}  # fmt: skip
SCALED_OUT = ("dask", "spark")


def measure(name: str, n: int, with_units: bool, first: dict[tuple[int, bool], Reduced]) -> None:
    """Print a line of the table; `first` has the panes of the first engine for each table."""
    columns = COLUMNS if with_units else COLUMNS | {"unit": None}
    reduce = ENGINES[name]
    (ROOT / "build").mkdir(
        exist_ok=True
    )  # a table of 20 million rows takes 1.3 GB, which /tmp may lack
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        small = Path(folder, "small")
        small.mkdir()
        before = processor_s()
        reduce(write(small, 1000), columns, 2)
        start_s = processor_s() - before
        paths = write(Path(folder), n)
        before, clock = processor_s(), time.monotonic()
        found = reduce(paths, columns, max(1, n // PIECE))
        used_s, clock_s = processor_s() - before, time.monotonic() - clock
    expected = first.setdefault((n, with_units), found)
    assert found.keys() == expected.keys()
    assert all(found[key] == expected[key] for key in expected)
    fill_s = fill(min(n, PIECE), with_units)
    print(
        f"| {name} | {n:,} | {'patient' if with_units else 'row'} | {1e6 * used_s / n:.2f} | {1e6 * fill_s:.2f} | "
        f"{1e6 * (used_s / n - fill_s):.2f} | {clock_s:.0f} | {start_s:.1f} |",
        flush=True,
    )


def main() -> None:
    """Run the engines that were named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=2e7, help="of Polars and DuckDB")
    parser.add_argument("--cluster-rows", type=float, default=2e6, help="of Dask and Spark")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT / "docs" / "examples"))
    warnings.simplefilter("ignore", SplitUnitsWarning)
    print("| engine | rows | unit | µs per row | fill | above the fill | seconds | start, CPU s |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    first: dict[tuple[int, bool], Reduced] = {}
    for name in given.engines:
        n = int(given.cluster_rows if name in SCALED_OUT else given.rows)
        for with_units in (True,) if name in SCALED_OUT else (False, True):
            measure(name, n, with_units, first)


if __name__ == "__main__":
    main()
