"""The ECE of 15 bins of equal width in SQL, in DuckDB and polars, of tables in memory and with one thread.

The table has the score of the top class and whether it is the label; or, of few classes, a column per class and the label.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# With more classes, nobody writes the columns into a query.
MAX_COLUMNS = 10
Call = Callable[[], float | None]
Table = dict[str, np.ndarray[Any, Any]]
_BINS = """select sum(abs(correct - confidence)) / sum(n) as ece from (
    select count(*) as n, sum(score) as confidence, sum(outcome) as correct from {rows}
    group by least(greatest(ceil(score * {bins}), 1), {bins})) as bins"""


def queries(
    top: Table, probabilities: np.ndarray[Any, Any], labels: Any, bins: int
) -> list[tuple[str, Table, str]]:
    """Return name, table and query: of scores and outcomes and, of few classes, of probabilities."""
    found = [("scores", top, _BINS.format(rows="rows", bins=bins))]
    n_classes = probabilities.shape[1]
    if n_classes <= MAX_COLUMNS:
        columns = {f"p{k}": np.ascontiguousarray(probabilities[:, k]) for k in range(n_classes)}
        chosen = " ".join(f"when {k} then p{k}" for k in range(n_classes))
        score = f"greatest({', '.join(columns)})"
        inner = f"""(select score, case when score = chosen then 1.0 else 0.0 end as outcome from (
            select {score} as score, case label {chosen} end as chosen from rows) as tops) as scored"""
        found.append(("columns", columns | {"label": labels}, _BINS.format(rows=inner, bins=bins)))
    return found


def calls(
    top: Table, probabilities: np.ndarray[Any, Any], labels: Any, bins: int
) -> dict[str, Call]:
    """Return the queries in DuckDB and polars by name; the tables are loaded before."""
    found: dict[str, Call] = {}
    for name, table, query in queries(top, probabilities, labels, bins):
        found |= {
            f"DuckDB, {name}": of_duckdb(table, query),
            f"polars, {name}": of_polars(table, query),
        }
    return found


def of_duckdb(rows: Table, query: str) -> Call:
    """Return the query of a table in DuckDB's memory."""
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    connection.execute("create table rows as select * from rows")
    return lambda: float(connection.execute(query).fetchone()[0])


def of_polars(rows: Table, query: str) -> Call:
    """Return the query of a data frame; `POLARS_MAX_THREADS` sets its threads."""
    import polars

    context = polars.SQLContext(rows=polars.DataFrame(rows))
    return lambda: float(context.execute(query, eager=True).item())
