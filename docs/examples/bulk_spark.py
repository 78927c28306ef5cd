"""Reduce a table to panes with Spark.

rows = spark.read.parquet("predictions/")  # or spark.read.format("delta").load(...)
panes = reduce(rows, cal.PaneSpec("multiclass", 10), unit="patient", time="event_time", every="1h")
client.model("triage").send_panes(pairs(panes), source="predictions@v12")
"""

from collections.abc import Iterable, Iterator
from datetime import UTC
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

import calibrant as cal

SCHEMA = pa.schema({"start": pa.timestamp("us", "UTC"), "slice": pa.string(), "pane": pa.binary()})


def reduce(
    rows: DataFrame, spec: cal.PaneSpec, *, unit: str, pieces: int = 64, **columns: Any
) -> DataFrame:
    """Return start, slice and pane; `columns` are those of `cal.fill_by`. A piece must fit in a worker's memory."""

    def fill(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = list(batches)
        panes = (
            cal.fill_by(pa.Table.from_batches(table), spec, unit=unit, **columns) if table else {}
        )
        for key, pane in panes.items():
            yield pa.record_batch([[key.start], [key.slice], [pane.to_bytes()]], schema=SCHEMA)

    def merge(group: pa.Table) -> pa.Table:
        first, *others = map(cal.Pane.from_bytes, group["pane"].to_pylist())
        pane = pa.array([first.merge_all(others).to_bytes()], pa.binary())
        return group.slice(0, 1).set_column(2, "pane", pane).cast(SCHEMA)

    schema = "start timestamp, slice string, pane binary"
    filled = rows.repartition(pieces, unit).mapInArrow(fill, schema)
    return filled.groupBy("start", "slice").applyInArrow(merge, schema)


def pairs(panes: DataFrame) -> Iterable[tuple[cal.Key, bytes]]:
    """Yield each key and pane in the order of the keys."""
    for row in panes.orderBy("start", "slice").toLocalIterator():
        yield cal.Key(row["start"].astimezone(UTC), row["slice"]), bytes(row["pane"])
