"""Three functions of panes for SQL in DuckDB: `calibrant_pane`, `calibrant_merge`, `calibrant_metric`.

register(database, cal.PaneSpec("multiclass", 10), "struct(probabilities float[10], labels utinyint, patient varchar)",
         unit="patient")

select hour, calibrant_metric(calibrant_merge(list(pane)), 'ece') from (
    select date_trunc('hour', event_time) as hour, hash(patient) % 16 as piece,
           calibrant_pane(list({probabilities: probabilities, labels: labels, patient: patient})) as pane
    from 'predictions/*.parquet' group by all) group by all
"""

from typing import Any

import duckdb
import pyarrow as pa

import calibrant as cal


def register(
    database: duckdb.DuckDBPyConnection, spec: cal.PaneSpec, row: str, **columns: Any
) -> None:
    """Add the functions to a connection; `row` is the type of a row, `columns` are those of `cal.fill_by`."""

    def pane(groups: pa.ListArray) -> pa.Array:
        """Fill a pane from each list of rows."""
        tables = [pa.Table.from_struct_array(each.values) for each in groups]
        filled = [cal.fill_by(table, spec, **columns) for table in tables]
        return pa.array([panes[cal.Key(None, "")].to_bytes() for panes in filled], pa.binary())

    def merge(groups: pa.ListArray) -> pa.Array:
        """Add each list of panes. Each unit must be complete in one of them."""
        lists = [[cal.Pane.from_bytes(each) for each in group] for group in groups.to_pylist()]
        return pa.array([sum(panes[1:], panes[0]).to_bytes() for panes in lists], pa.binary())

    def metric(pane: bytes, name: str) -> float | None:
        """Compute a metric of a pane."""
        value: float | None = cal.Pane.from_bytes(pane).evaluate(name)[name].value
        return value

    database.create_function("calibrant_pane", pane, [f"{row}[]"], "blob", type="arrow")
    database.create_function("calibrant_merge", merge, ["blob[]"], "blob", type="arrow")
    database.create_function("calibrant_metric", metric, ["blob", "varchar"], "double")
